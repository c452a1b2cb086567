// What the console's pages can do more with scripts: they stay up to date.
import { tellZone, tick } from './time.js';
import { live } from './live.js';
import { keys } from './keys.js';
import { forms } from './forms.js';
import { charts } from './charts.js';
import { log } from './log.js';

tick();
keys();
forms();
charts();
log();
live();
tellZone();
