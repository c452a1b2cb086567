package alert_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"go.uber.org/zap"

	"github.com/wasmjob/wasmjob/host/alert"
	"github.com/wasmjob/wasmjob/test/schemas"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const full = `receivers:
  ops-mail: {email: {to: [ops@example.com, "Night Shift <night@example.com>"], from: wasmjob@example.com, server: "smtp.example.com:587", user: wasmjob, passwordFile: smtp.secret}}
  chat: {slack: {urlFile: /etc/wasmjob/slack}}
  ding: {dingtalk: {urlFile: ding, secretFile: ding.secret}}
  wecom: {wecom: {urlFile: wecom}}
  feishu: {feishu: {url: "https://open.feishu.cn/open-apis/bot/v2/hook/x"}}
  bot: {telegram: {chat: "-100123", tokenFile: bot}}
  hook: {webhook: {url: "https://hook.example/alerts", tokenFile: hook.token}}
routes:
  - {name: team, jobs: "team-a-*", rules: [failures, lost], to: [chat, ding], group: [job, rule], wait: 1s, repeat: 30m, resolved: false, continue: true}
  - {name: ops, to: ops-mail}
defaults: {failures: 3, startWithin: 90s}
jobs:
  - {jobs: [report, "bill-*"], succeedEvery: 26h, longerThan: 30m, longerThanUsual: 2.5}
  - {jobs: bill-test, failures: off, startWithin: off, lost: false, succeedEvery: 7d}
hosts: {gone: true, session: false}
errorHandlers: {EMAIL: ops, DINGTALK: team}
`

func TestParse(t *testing.T) {
	t.Parallel()
	f, err := alert.Parse("/etc/wasmjob/alerts.yaml", []byte(full))
	if err != nil {
		t.Fatal(err)
	}
	for job, want := range map[string]alert.Rules{
		"other":     {Failures: 3, StartWithin: 90 * time.Second, Lost: true, Held: true, Refused: true},
		"bill-x":    {Failures: 3, StartWithin: 90 * time.Second, SucceedEvery: 26 * time.Hour, LongerThan: 30 * time.Minute, LongerThanUsual: 2.5, Lost: true, Held: true, Refused: true},
		"bill-test": {SucceedEvery: 7 * 24 * time.Hour, LongerThan: 30 * time.Minute, LongerThanUsual: 2.5, Held: true, Refused: true},
	} {
		if got := f.For(job, nil); got != want {
			t.Errorf("%s: %+v, want %+v", job, got, want)
		}
	}
	if f.Hosts != (alert.Hosts{Gone: true, Registry: true, History: true}) {
		t.Errorf("%+v", f.Hosts)
	}
	mail := f.Receivers["ops-mail"]
	if mail.Kind != alert.Email || mail.SecretFile != "/etc/wasmjob/smtp.secret" || len(mail.To) != 2 || mail.To[1] != "night@example.com" {
		t.Errorf("%+v", mail)
	}
	if ding := f.Receivers["ding"]; ding.URLFile != "/etc/wasmjob/ding" || ding.SecretFile != "/etc/wasmjob/ding.secret" {
		t.Errorf("%+v", ding)
	}
	if r := f.Routes[0]; r.Wait != time.Second || r.Repeat != 30*time.Minute || r.Resolved || !r.Continue || len(r.To) != 2 || len(r.Group) != 2 {
		t.Errorf("%+v", r)
	}
	if r := f.Routes[1]; r.Wait != alert.DefaultWait || r.Repeat != alert.DefaultRepeat || !r.Resolved || r.Continue {
		t.Errorf("%+v", r)
	}
	if f.Handlers["EMAIL"] != "ops" {
		t.Errorf("%+v", f.Handlers)
	}
}

// TestParse_mistakes: each mistake is named with its line, the field, what was found and
// what was expected.
func TestParse_mistakes(t *testing.T) {
	t.Parallel()
	editor := schemas.New(t, alert.Schema())
	editor.Check(t, full, nil)
	const head = "receivers: {hook: {webhook: {url: \"https://hook.example\"}}}\n"
	for text, want := range map[string]string{
		"":                            "a.yaml: the file is empty, expected receivers and routes",
		"- 1":                         "a.yaml:1:1: found a list, expected a mapping with receivers and routes",
		head:                          "a.yaml:1:1: routes: is missing, expected a list of routes",
		"receiver: 1":                 `a.yaml:1:1: unknown field "receiver"; did you mean "receivers"?`,
		head + "routes: [{to: hook}]": `a.yaml:2:10: routes.name: found "", expected a name of letters, digits, - and _`,
		head + "routes: [{name: a, to: hook}, {name: a, to: hook}]":                                                              `"a" is the name of two routes`,
		head + "routes: [{name: a, to: hok}]":                                                                                    `a.yaml:2:24: routes.to: found "hok", expected the name of a receiver; did you mean "hook"?`,
		head + "routes: [{name: a}]":                                                                                             `routes.to: is missing, expected receivers`,
		head + "routes: [{name: a, to: hook, wait: soon}]":                                                                       `routes.wait: found "soon", expected a duration such as 90s, 15m, 26h or 7d`,
		head + "routes: [{name: a, to: hook, repeat: 5s}]":                                                                       `routes.repeat: found "5s", expected a duration such as 90s, 15m, 26h or 7d, at least 1m, or off`,
		head + "routes: [{name: a, to: hook, rules: [longerThanUsual]}]":                                                         `routes.rules: found the rule "longerThanUsual": its alerts have the rule "longerThan"`,
		head + "routes: [{name: a, to: hook, rules: [failure]}]":                                                                 `routes.rules: found the rule "failure"; did you mean "failures"?`,
		head + "routes: [{name: a, to: hook, group: [host]}]":                                                                    `routes.group: found "host", expected job or rule`,
		head + "routes: [{name: a, to: hook, jobs: \"a,b\"}]":                                                                    `routes.jobs: found "a,b", expected one job's name or one pattern`,
		head + "routes: []\ndefaults: {failures: 0}":                                                                             `a.yaml:3:22: defaults.failures: found "0", expected a number from 1 to 1000, or off`,
		head + "routes: []\ndefaults: {longerThanUsual: 1}":                                                                      `defaults.longerThanUsual: found "1", expected a number over 1, such as 3, or off`,
		head + "routes: []\ndefaults: {succeedEvery: 400d}":                                                                      `defaults.succeedEvery: found "400d", expected a duration`,
		head + "routes: []\ndefaults: {lost: maybe}":                                                                             `defaults.lost: found "maybe", expected true or false`,
		head + "routes: []\njobs: [{failures: 2}]":                                                                               `a.yaml:3:8: jobs: found neither jobs nor labels, expected a pattern of jobs`,
		head + "routes: []\nhosts: {gone: 7}":                                                                                    `hosts.gone: found "7", expected true or false`,
		head + "routes: []\nerrorHandlers: {SMS: a}":                                                                             `errorHandlers: found "SMS", expected one of ElasticJob's error handlers EMAIL, WECHAT, DINGTALK`,
		head + "routes: []\nerrorHandlers: {EMAIL: a}":                                                                           `errorHandlers.EMAIL: found "a", expected the name of a route`,
		"receivers: {a: {sms: {}}}\nroutes: []":                                                                                  `receivers.a: unknown field "sms", expected one of email, slack, dingtalk, wecom, feishu, telegram, webhook`,
		"receivers: {a: {}}\nroutes: []":                                                                                         `receivers.a: found 0 kinds of receivers, expected one of email`,
		"receivers: {a: {slack: {}}}\nroutes: []":                                                                                `receivers.a.slack: expected url or urlFile`,
		"receivers: {a: {slack: {url: \"ftp://x\"}}}\nroutes: []":                                                                `receivers.a.slack.url: found the scheme "ftp", expected https or http`,
		"receivers: {a: {telegram: {chat: x}}}\nroutes: []":                                                                      `receivers.a.telegram: expected chat and tokenFile`,
		"receivers: {a: {email: {to: x, from: a@b.c, server: s}}}\nroutes: []":                                                   `receivers.a.email.server: found "s", expected HOST:PORT`,
		"receivers: {a: {email: {to: nobody, from: a@b.c, server: \"s:25\"}}}\nroutes: []":                                       `receivers.a.email.to: found "nobody", expected an address such as ops@example.com`,
		"receivers: {a: {email: {to: a@b.c, from: a@b.c, server: \"s:25\", user: u}}}\nroutes: []":                               `user and passwordFile go together`,
		"receivers: {a: {email: {to: a@b.c, from: a@b.c, server: \"s:25\", user: u, passwordFile: p, plain: true}}}\nroutes: []": `a password for a connection without TLS`,
	} {
		_, err := alert.Parse("a.yaml", []byte(text))
		editor.Check(t, text, err)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s\ngot  %v\nwant %s", text, err, want)
		}
	}
	if editor.Refused < 15 {
		t.Errorf("the schema refuses %d of these files: it shows little", editor.Refused)
	}
}

// FuzzParse: whatever stands in a file, it is read or refused, and what is read has no
// route without a receiver.
func FuzzParse(f *testing.F) {
	f.Add(full)
	f.Add("receivers: {a: {}}\nroutes: [{to: a}]")
	f.Fuzz(func(t *testing.T, text string) {
		file, err := alert.Parse("a.yaml", []byte(text))
		if err != nil {
			return
		}
		for _, r := range file.Routes {
			for _, to := range r.To {
				if file.Receivers[to].Kind == "" {
					t.Errorf("route %q goes to %q, which is no receiver", r.Name, to)
				}
			}
		}
		file.For("job", nil)
	})
}

// TestLive: a file that is changed is taken; one that has a mistake, or is gone, is not.
func TestLive(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "alerts.yaml")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(path+".new", []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(path+".new", path); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := alert.Open(path, zap.NewNop()); err == nil || !strings.Contains(err.Error(), "does not exist") {
		t.Errorf("a file that is not there: %v", err)
	}
	write(full)
	l, err := alert.Open(path, zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- l.Watch(ctx) }()
	defer func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	until := func(what string, is func() bool) {
		t.Helper()
		for end := time.Now().Add(20 * time.Second); !is(); time.Sleep(10 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("%s: problem %q", what, l.Problem())
			}
		}
	}
	write(strings.Replace(full, "failures: 3", "failures: 5", 1))
	<-l.Changed()
	if n := l.File().For("x", nil).Failures; n != 5 {
		t.Errorf("failures %d, want 5", n)
	}
	write("routes: 7")
	until("a mistake", func() bool { return strings.Contains(l.Problem(), "found \"7\", expected a list") })
	if n := l.File().For("x", nil).Failures; n != 5 {
		t.Errorf("failures %d after a mistake, want 5", n)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	until("removed", func() bool { return strings.Contains(l.Problem(), "was removed") })
	write(full)
	<-l.Changed()
	until("mended", func() bool { return l.Problem() == "" })
}
