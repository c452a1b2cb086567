package e2e_test

import (
	"os"
	"strings"
	"testing"
)

// TestImport: lines of a crontab and CronJobs become definitions that validate accepts, with what
// cannot be carried over; mistakes are refused.
func TestImport(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.putText("crontab", "MAILTO=a@b\n*/5 * * * * /usr/bin/poll --fast\n61 * * * * wrong\n")
	a := p.cli("job", "import", "crontab", p.path("crontab"), "--zone", "Europe/Berlin", "--out", p.path("jobs"))
	a.mustSay(t, 0, []string{"job poll, line 2", "  next: ", "line 3: left out", "MAILTO"}, "job", "import", "crontab")
	text, err := os.ReadFile(p.path("jobs/poll.yaml"))
	if err != nil || !strings.Contains(string(text), "timeZone: Europe/Berlin") {
		t.Errorf("%v\n%s", err, text)
	}
	p.putText("cj.yaml", "kind: CronJob\nmetadata: {name: report}\nspec: {schedule: '0 0 */2 * MON', timeZone: UTC, jobTemplate: {spec: {template: {spec: {containers: [{image: x}]}}}}}\n")
	p.cli("job", "import", "cronjob", p.path("cj.yaml"), "--out", p.path("jobs")).mustSay(t, 0, []string{"  next, as it was read before: ", `its schedule "0 0 */2 * MON" means other instants here`}, "job", "import", "cronjob")
	p.cli("validate", p.path("jobs/poll.yaml"), p.path("jobs/report.yaml")).mustSay(t, 1, []string{"poll: 1 item, next fire", "report: 1 item, next fire", "there is no such file beside the definition"}, "validate")

	p.refused(1, []string{"poll.yaml exists; --force writes over it"}, "job", "import", "crontab", p.path("crontab"), "--out", p.path("jobs"))
	p.refused(2, []string{"--out is missing"}, "job", "import", "crontab", p.path("crontab"))
	p.refused(2, []string{"say what to import"}, "job", "import", "quartz")
	p.refused(2, []string{"expected one of them"}, "job", "import", "quartz", "x", "--database", "mysql://a@b/c", "--out", "o")
	p.refused(2, []string{"--zone"}, "job", "import", "crontab", p.path("crontab"), "--zone", "Mars", "--out", p.path("o"))
	p.refused(1, []string{"found no INSERT"}, "job", "import", "xxl-job", p.path("crontab"), "--out", p.path("o"))
	p.refused(1, []string{"found no INSERT"}, "job", "import", "quartz", "-", "--out", p.path("o"))
	p.refused(1, []string{"/dev/zero is no regular file"}, "job", "import", "crontab", "/dev/zero", "--out", p.path("o"))
	p.refused(1, []string{"--database: ", "found SQLite"}, "job", "import", "quartz", "--database", "sqlite:"+p.path("x.db"), "--out", p.path("o"))
	p.refused(2, []string{`unknown command "chronos"`}, "job", "import", "chronos")
}
