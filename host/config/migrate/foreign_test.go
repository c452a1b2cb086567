package migrate

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/wasmjob/wasmjob/host/config/definition"
)

// said is what became of an input: a line for each job, with its definition, and the notes.
func said(t *testing.T, i *Imported, err error) string {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for n := range i.Jobs {
		text, _, err := i.Jobs[n].Definition()
		if err != nil {
			t.Fatal(err)
		}
		b.WriteString(i.Jobs[n].Place + "\n" + string(text))
	}
	for _, note := range i.Notes {
		b.WriteString("note: " + note + "\n")
	}
	return b.String()
}

// mustHave checks that a text has all lines.
func mustHave(t *testing.T, text string, lines ...string) {
	t.Helper()
	have := strings.Split(text, "\n")
	for _, line := range lines {
		if !slices.Contains(have, line) {
			t.Errorf("no line %q in:\n%s", line, text)
		}
	}
}

func TestCrontab(t *testing.T) {
	t.Parallel()
	i, err := Crontab([]byte(`# comment
MAILTO=ops@example.com
CRON_TZ=Europe/Berlin
DIR = "/srv/backup"
*/5 * * * *  /usr/local/bin/poll.sh --fast x=1
0 2 * * 1-5	cd /srv && /usr/bin/python3 report.py --day=$(date +\%F)
@daily  /usr/local/bin/poll.sh --full
@reboot /usr/local/bin/warm
0~59 3 * * * random
30 2 * * * mail -s x me%hello%there
30 2 30 2 * never
nonsense
1 2 3
`), false)
	text := said(t, i, err)
	mustHave(t, text, "line 5", "jobName: poll", "cron: '*/5 * * * *'", "timeZone: Europe/Berlin", "type: SCRIPT",
		"line 6", "jobName: report", "line 7", "jobName: poll-2", "cron: '@daily'", "jobName: warm", `# what stood behind % was its standard input: "hello\nthere"`,
		"# the crontab set DIR=/srv/backup: grant it to the job as env, or have it in the module",
		"# @reboot: nothing here fires when a machine starts: the job has no schedule, and runs when it is triggered",
		`note: line 9: left out: cron "0~59 3 * * *": field 1 (minutes): "0~59" is not allowed; allowed are *, 0-59, ranges, lists and steps`,
		`note: line 11: left out: cron "30 2 30 2 *": never fires: the days, months and years given never come together`,
		`note: line 12: left out: found "nonsense", expected five fields or an @word, and a command`,
		`note: line 13: left out: found "1 2 3", expected five fields or an @word, and a command`)
	if len(i.Jobs) != 5 || i.Jobs[1].Command != "cd /srv && /usr/bin/python3 report.py --day=$(date +%F)" {
		t.Errorf("%d jobs; %q", len(i.Jobs), i.Jobs[1].Command)
	}
	if s := string(i.Jobs[1].Skeleton()); !strings.Contains(s, "python3 report.py") {
		t.Errorf("the module's beginnings do not say what it did:\n%s", s)
	}

	i, err = Crontab([]byte("17 * * * * www-data cd / && run-parts --report /etc/cron.hourly\n5 * * * * root\n"), true)
	mustHave(t, said(t, i, err), "jobName: run-parts", "# it ran as the user www-data: a guest has no user, and what it may read is granted (docs/grants.md)",
		`note: line 2: left out: found "5 * * * * root", expected five fields or an @word, a user, and a command`)
}

// TestCrontabMany: notes are bounded.
func TestCrontabMany(t *testing.T) {
	t.Parallel()
	i, err := Crontab([]byte(strings.Repeat("x\n", 5000)+strings.Repeat("* * * * * job\n", 300)), false)
	if err != nil || len(i.Jobs) != 300 || len(i.Notes) > 60 || i.Jobs[299].Name != "job-300" {
		t.Errorf("%d jobs, %d notes, %v", len(i.Jobs), len(i.Notes), err)
	}
	if _, err := Crontab([]byte("* * * * * "+strings.Repeat("x", 1<<17)), false); err == nil {
		t.Error("a line of 128 KiB is no error")
	}
}

const manifest = `
apiVersion: v1
kind: List
items:
- apiVersion: batch/v1
  kind: CronJob
  metadata: {name: report, namespace: shop}
  spec:
    schedule: "0 0 */2 * MON"
    timeZone: Europe/Berlin
    concurrencyPolicy: Forbid
    startingDeadlineSeconds: 600
    jobTemplate:
      spec:
        completions: 4
        parallelism: 2
        completionMode: Indexed
        backoffLimit: 3
        activeDeadlineSeconds: 3600
        template:
          spec:
            serviceAccountName: reporter
            initContainers: [{name: first, image: x}]
            containers:
            - name: main
              image: shop/report:1.2
              command: ["report", "--all items"]
              env:
              - {name: MODE, value: fast}
              - name: TOKEN
                valueFrom: {secretKeyRef: {name: api, key: token}}
            volumes: [{name: data, persistentVolumeClaim: {claimName: x}}]
- {kind: Deployment, metadata: {name: x}}
---
apiVersion: batch/v1beta1
kind: CronJob
metadata: {name: every}
spec:
  schedule: "@every 90s"
  suspend: true
  jobTemplate: {spec: {backoffLimit: 0, template: {spec: {containers: [{name: a, image: b}]}}}}
---
kind: CronJob
metadata: {name: broken}
spec: {schedule: "61 * * * *"}
---
kind: CronJob
metadata: {name: nowhere}
spec: {schedule: "CRON_TZ=Mars/Phobos * * * * *"}
`

func TestCronJobs(t *testing.T) {
	t.Parallel()
	i, err := CronJobs([]byte(manifest))
	mustHave(t, said(t, i, err), "document 1, item 1, CronJob report", "cron: 0 0 */2 * MON", "timeZone: Europe/Berlin", "shardingTotalCount: 4", "misfire: false",
		"timeout: 1h", "catchUpWindow: 10m", "  attempts: 4", "  on: [RETRY, FAIL, TRAP, EXIT]", "  backoff: 10s", "  maxBackoff: 6m",
		"# environment MODE=fast: grant it as env", "# environment TOKEN was key token of the secret api: grant it as a secret",
		"document 2, CronJob every", "cron: '@every 90s'", "disabled: true", "  attempts: 1",
		"note: passed over: 1 of kind Deployment; only a CronJob becomes a job",
		"note: document 3, CronJob broken: left out: end of range (61) above maximum (59): 61")
	if !slices.ContainsFunc(i.Notes, func(s string) bool { return strings.HasPrefix(s, "document 4, CronJob nowhere: left out: time zone") }) {
		t.Errorf("notes: %q", i.Notes)
	}
	// Kubernetes fires on odd days and on Mondays, cron on odd Mondays.
	from := time.Date(2026, 11, 27, 12, 0, 0, 0, time.UTC)
	ours, theirs := i.Jobs[0].Next(from, 2)
	if got := [4]string{day(ours[0]), day(ours[1]), day(theirs[0]), day(theirs[1])}; got != [4]string{"Mon 07", "Mon 21", "Sun 29", "Mon 30"} {
		t.Errorf("next: %v", got)
	}
	if _, theirs := i.Jobs[1].Next(from, 5); theirs != nil {
		t.Errorf("@every: %v", theirs)
	}
	if _, err := CronJobs([]byte("a: [")); err == nil {
		t.Error("broken YAML is no error")
	}
}

func day(t time.Time) string { return t.Format("Mon 02") }

// TestImportedZone: a zone is for schedules that have none, in both readings.
func TestImportedZone(t *testing.T) {
	t.Parallel()
	i, err := CronJobs([]byte("kind: CronJob\nmetadata: {name: a}\nspec: {schedule: '0 9 * * *'}\n---\nkind: CronJob\nmetadata: {name: b}\nspec: {schedule: '0 9 * * *', timeZone: UTC}\n"))
	if err = errors.Join(err, i.In("Asia/Shanghai")); err != nil {
		t.Fatal(err)
	}
	for n, hour := range []int{1, 9} {
		ours, theirs := i.Jobs[n].Next(time.Now(), 3)
		if len(ours) != 3 || theirs != nil || ours[0].UTC().Hour() != hour {
			t.Errorf("%s: %v, %v", i.Jobs[n].Name, ours, theirs)
		}
	}
	if err := i.In("Mars"); err == nil {
		t.Error("a zone that nobody knows is no error")
	}
}

const xxlDump = "-- MySQL dump\n/*!40101 SET NAMES utf8 */;\nCREATE TABLE `xxl_job_group` (\n  `id` int(11) NOT NULL AUTO_INCREMENT,\n  `app_name` varchar(64) NOT NULL COMMENT 'it''s a name, (really)',\n" +
	"  `title` varchar(12),\n  PRIMARY KEY (`id`),\n  KEY `i` (`title`)\n) ENGINE=InnoDB;\nLOCK TABLES `xxl_job_group` WRITE;\nINSERT INTO `xxl_job_group` VALUES (1,'shop-executor','Shop');\n" +
	"INSERT INTO `xxl_job_info` (`id`, `job_group`, `job_desc`, `author`, `alarm_email`, `schedule_type`, `schedule_conf`, `misfire_strategy`, `executor_route_strategy`, `executor_handler`, `executor_param`, `executor_block_strategy`, `executor_timeout`, `executor_fail_retry_count`, `glue_type`, `glue_source`, `child_jobid`, `trigger_status`) VALUES\n" +
	"(1,1,'日报','Li','a@b.c','CRON','0 0 2 * * ?','DO_NOTHING','FIRST','reportHandler','day=1','DISCARD_LATER',600,2,'BEAN',NULL,'2,9',1),\n" +
	"(2,1,'sh; job','',NULL,'FIX_RATE','30','FIRE_ONCE_NOW','SHARDING_BROADCAST','','','SERIAL_EXECUTION',0,0,'GLUE_SHELL','echo ''hi'';\\nexit 0','',0),\n" +
	"(3,1,'again','',NULL,'NONE','','DO_NOTHING','ROUND','reportHandler','','COVER_EARLY',0,0,'BEAN','','4',1),\n" +
	"(4,1,'last','',NULL,'NONE','','DO_NOTHING','ROUND','lastHandler','','',0,0,'BEAN','','3',1);\n"

func TestXXLJob(t *testing.T) {
	t.Parallel()
	i, err := XXLJob([]byte(xxlDump))
	mustHave(t, said(t, i, err), "job 1 (日报)", "jobName: reportHandler-1", "description: 日报", "cron: 0 0 2 * * ?", "jobParameter: day=1", "misfire: false", "timeout: 10m",
		"catchUpWindow: 0", "  on: [RETRY, FAIL, TRAP, EXIT, TIMEOUT]", "# its executor was shop-executor",
		"# after it ran its child, job 9, which is not there", "# it also ran after each success of reportHandler-1: no job here runs after one job or another, or beside its own schedule; see after in schedules.md",
		"after:", "  - job: reportHandler-3", "# it was the child of job reportHandler-3",
		"# failures were sent to a@b.c: say so in the file of alerts (--alerts)",
		"job 2 (sh; job)", "jobName: job-2", "cron: '@every 30s'", "disabled: true", "type: SCRIPT",
		"# its source (GLUE_SHELL) stood in the database; it is no module: build one that does the same",
		"jobName: reportHandler-3", "overlap: terminate", "overlap: queue_all", "# it had no schedule of its own")
	for _, broken := range []string{"", "SELECT 1;", "INSERT INTO xxl_job_info VALUES (1,2)", "INSERT INTO x (a) VALUES (1", "INSERT INTO x (a) VALUES 7", "CREATE TABLE x (a int", "INSERT INTO other (a) VALUES (1);"} {
		if i, err := XXLJob([]byte(broken)); err == nil {
			t.Errorf("%q: %+v", broken, i)
		}
	}
}

func TestQuartz(t *testing.T) {
	t.Parallel()
	i, err := Quartz([]byte(`<?xml version="1.0"?>
<job-scheduling-data xmlns="http://www.quartz-scheduler.org/xml/JobSchedulingData" version="2.0">
 <schedule>
  <job><name>report</name><group>shop</group><description>Daily &amp; nightly</description><job-class>com.shop.Report</job-class><durability>true</durability><recover>true</recover>
   <job-data-map><entry><key>day</key><value>1</value></entry></job-data-map></job>
  <job><name>lonely</name><job-class>com.shop.Lonely</job-class></job>
  <trigger><cron><name>night</name><job-name>report</job-name><job-group>shop</job-group><misfire-instruction>MISFIRE_INSTRUCTION_DO_NOTHING</misfire-instruction>
    <cron-expression>0 0 2 ? * MON-FRI</cron-expression><time-zone>Europe/Berlin</time-zone></cron></trigger>
  <trigger><simple><name>often</name><job-name>report</job-name><job-group>shop</job-group><repeat-count>-1</repeat-count><repeat-interval>90000</repeat-interval></simple></trigger>
  <trigger><calendar-interval><name>months</name><job-name>report</job-name><job-group>shop</job-group><repeat-interval>2</repeat-interval><repeat-interval-unit>MONTH</repeat-interval-unit></calendar-interval></trigger>
  <trigger><cron><name>lost</name><job-name>nobody</job-name><cron-expression>0 0 2 * * ?</cron-expression></cron></trigger>
  <trigger><cron><name>wrong</name><job-name>report</job-name><job-group>shop</job-group><cron-expression>0 0 2 * * *</cron-expression></cron></trigger>
 </schedule>
</job-scheduling-data>`))
	mustHave(t, said(t, i, err), "trigger DEFAULT.night", "jobName: report-night", "description: Daily & nightly", "cron: 0 0 2 ? * MON-FRI", "timeZone: Europe/Berlin", "misfire: false", "failover: true",
		"jobClass: com.shop.Report", "# its group was shop", "# its data map had day=1: say it in jobParameter or props", "cron: '@every 1m30s'",
		"# it fired every 2 MONTH: there is no such interval here, write a cron expression", "jobName: lonely",
		"note: trigger DEFAULT.lost: left out: there is no job DEFAULT.nobody")
	if !slices.ContainsFunc(i.Notes, func(s string) bool { return strings.HasPrefix(s, "trigger DEFAULT.wrong: left out: cron") }) {
		t.Errorf("notes: %q", i.Notes)
	}

	i, err = Quartz([]byte("COPY public.qrtz_job_details (sched_name, job_name, job_group, description, job_class_name, is_durable, requests_recovery) FROM stdin;\n" +
		"s\treport\tDEFAULT\ttwo\\nlines\tcom.shop.Report\tt\tf\n\\.\n" +
		"COPY public.qrtz_triggers (sched_name, trigger_name, trigger_group, job_name, job_group, next_fire_time, priority, trigger_state, trigger_type, start_time, end_time, calendar_name, misfire_instr) FROM stdin;\n" +
		"s\tnight\tDEFAULT\treport\tDEFAULT\t1\t7\tPAUSED\tCRON\t1700000000000\t0\t\\N\t2\n\\.\n" +
		"COPY public.qrtz_cron_triggers (sched_name, trigger_name, trigger_group, cron_expression, time_zone_id) FROM stdin;\ns\tnight\tDEFAULT\t0 0 2 * * ?\tEurope/Berlin\n\\.\n"))
	mustHave(t, said(t, i, err), "jobName: report", "cron: 0 0 2 * * ?", "timeZone: Europe/Berlin", "misfire: false", "disabled: true", "# its priority was 7", "# it began at 2023-11-14T22:13:20Z: say so in startAt, with a zone")

	for _, broken := range []string{"<a>", "<a/>", "<a><job><b></a>", "x", "COPY t FROM stdin;", "COPY t (a) FROM stdin;\n1\n"} {
		if _, err := Quartz([]byte(broken)); err == nil {
			t.Errorf("%q is read", broken)
		}
	}
}

// FuzzForeign: whatever is read, nothing panics, and each job has a definition that a host reads.
func FuzzForeign(f *testing.F) {
	for _, s := range []string{"* * * * * a%b", "X=1\n@daily x", manifest, xxlDump, "<job-scheduling-data><job><name>a</name></job></job-scheduling-data>", "COPY a.job_details (job_name) FROM stdin;\nx\n\\.\n"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		for _, read := range []func([]byte) (*Imported, error){
			func(b []byte) (*Imported, error) { return Crontab(b, false) }, func(b []byte) (*Imported, error) { return Crontab(b, true) }, CronJobs, XXLJob, Quartz,
		} {
			i, err := read(text)
			if err != nil {
				continue
			}
			for n := range i.Jobs {
				j := &i.Jobs[n]
				definitionText, _, err := j.Definition()
				if err != nil {
					continue // said
				}
				if _, err := definition.Parse(j.File()+".yaml", definitionText); err != nil {
					t.Errorf("%s: %v\n%s", j.Name, err, definitionText)
				}
				j.Next(time.Unix(1_800_000_000, 0), 2)
			}
		}
	})
}

// TestEqualNamesAreCheap: as many jobs of one name again take as much work again, and not four times as much.
func TestEqualNamesAreCheap(t *testing.T) {
	work := func(n int) float64 {
		return testing.AllocsPerRun(1, func() {
			i := &Imported{}
			for range n {
				i.unused("a")
				i.unused("A-2")
			}
			if len(i.taken) != 2*n {
				t.Errorf("%d jobs have %d names", 2*n, len(i.taken))
			}
		})
	}
	if few, many := work(500), work(2000); many > 6*few {
		t.Errorf("500 pairs of names take %.0f allocations, 2,000 take %.0f", few, many)
	}
}

// TestImportIsBounded: a short text of very many things is refused before they take memory.
func TestImportIsBounded(t *testing.T) {
	t.Parallel()
	list := "kind: List\nitems:\n"
	for name, c := range map[string]struct {
		read func([]byte) (*Imported, error)
		text string
		want string
	}{
		"CronJobs, lines":   {CronJobs, list + strings.Repeat("- {}\n", mostEntries/2), "lines, commas and list items, expected at most 1000000"},
		"CronJobs, flow":    {CronJobs, "items: [" + strings.Repeat("~,", mostEntries) + "]", "expected at most 1000000"},
		"CronJobs, nested":  {CronJobs, "items: " + strings.Repeat("- ", mostEntries+1), "expected at most 1000000"},
		"CronJobs, bytes":   {CronJobs, "a: " + strings.Repeat("x", mostText), "expected at most 67108864: import it in parts"},
		"CronJobs, cycle":   {CronJobs, "items: &a\n- {items: *a}\n", "lists in lists"},
		"CronJobs, aliases": {CronJobs, "x: &a [" + strings.Repeat("{},", 999) + "{}]\nitems:\n" + strings.Repeat("- {items: *a}\n", 1001), "excessive aliasing"},
		"Quartz":            {Quartz, "<a>" + strings.Repeat("<job/>", 2*mostForeign+2) + "</a>", "found more than 20000 jobs and triggers"},
		"Quartz, bytes":     {Quartz, "<a>" + strings.Repeat(" ", mostText), "import it in parts"},
		"crontab":           {func(b []byte) (*Imported, error) { return Crontab(b, false) }, strings.Repeat("#\n", mostText), "import it in parts"},
	} {
		if _, err := c.read([]byte(c.text)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

// TestFilesShowWhatTheyHave: characters that turn the direction of text, or order a terminal about, are escaped in the files
// that an import makes, and the values stay what they were.
func TestFilesShowWhatTheyHave(t *testing.T) {
	t.Parallel()
	const evil = "a\u202e*/\x1b[2J\u200b\U000e0001\nb"
	j := newForeign("job", "line 1").Job
	j.Kind, j.Command, j.Class, j.Configuration.JobName = KindScript, evil, evil, "job"
	j.Configuration.Description, j.Configuration.JobParameter, j.Configuration.Props = "d\u202e\U000e0001", "p\u2066", map[string]string{"k\u202e": "v\u202e"}
	j.note("its command was %s", evil)
	text, _, err := j.Definition()
	if err != nil {
		t.Fatal(err)
	}
	simple := j
	simple.Class = ""
	for name, text := range map[string]string{"definition": string(text), "class": string(j.Skeleton()), "command": string(simple.Skeleton())} {
		if !unharmed(text) || !strings.Contains(text, `\u202e`) {
			t.Errorf("%s:\n%q", name, text)
		}
	}
	back, err := definition.Parse("job.yaml", text)
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	if c := back[0].Configuration; c.Description != j.Configuration.Description || c.JobParameter != j.Configuration.JobParameter || c.Props["k\u202e"] != "v\u202e" {
		t.Errorf("the definition came back as %q %q %q", c.Description, c.JobParameter, c.Props)
	}
}
