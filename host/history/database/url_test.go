package database

import (
	"errors"
	"strings"
	"testing"
	"time"
)

func TestParse(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ text, credentials, where string }{
		{"sqlite:/var/h.db", "", "sqlite:/var/h.db"},
		{"sqlite:/var/a b?.db", "", ""},
		{"SQLITE:/var/h.db?successes=1d&elasticjob=true&spool=/x", "", "sqlite:/var/h.db"},
		{"postgres://u@h/d", "", "postgres://u@h/d"},
		{"postgresql://u:pw@h:5433/d?sslmode=disable&failures=off", "", "postgresql://u@h:5433/d?sslmode=disable"},
		{"postgres://u@h/d", "v:p@ss:w/rd", "postgres://v@h/d"},
		{"postgres://h/d?user=u&password=pw&sslmode=disable", "", "postgres://h/d?sslmode=disable&user=u"},
		{"mysql://u:pw@h/d?tls=false&audit=1d12h", "", "mysql://u@h/d?tls=false"},
		{"mysql://u@[::1]:3307/d", "", "mysql://u@[::1]:3307/d"},
		{"sqlite:", "", ""}, {"sqlite:///x", "", ""}, {"sqlite:/x?mode=ro", "", ""}, {"sqlite:/x", "u:p", ""}, {"sqlite:/x?successes=1h", "", ""},
		{"sqlite:/x?successes=0d", "", ""}, {"sqlite:/x?successes=7", "", ""}, {"sqlite:/x?successes=-2d", "", ""}, {"sqlite:/x?successes=100d", "", ""}, {"sqlite:/x?successes=off", "", ""}, {"sqlite:/x?elasticjob=yes", "", ""}, {"sqlite:/x?spool=", "", ""}, {"sqlite:/x?a=%zz", "", ""},
		{"postgres://u:pw@h:port/d", "", ""}, {"postgres://u:pw@h/d?sslmode=perhaps", "", ""}, {"postgres://u:p%w@h/d", "", ""}, {"postgres://u:pw@h/d#x", "", ""},
		{"mysql://u:pw@h", "", ""}, {"mysql://u:pw@h/a/b", "", ""}, {"mysql://u:pw@/d", "", ""}, {"mysql://u:pw@h/d?tls=maybe", "", ""}, {"mysql://u:pw@h/d?allowAllFiles=true", "", ""},
		{"oracle://u:pw@h/d", "", ""}, {"", "", ""}, {"/var/h.jsonl", "", ""},
	} {
		got, err := Parse(c.text, c.credentials)
		switch {
		case c.where == "" && !errors.Is(err, ErrURL):
			t.Errorf("%s: %+v, %v; want an error", c.text, got, err)
		case c.where != "" && (err != nil || got.Where != c.where):
			t.Errorf("%s: %+v, %v; want %s", c.text, got, err, c.where)
		}
		if err != nil && strings.Contains(err.Error(), "pw") {
			t.Errorf("%s: the password is in %q", c.text, err)
		}
		if strings.Contains(Redact(c.text), "pw") {
			t.Errorf("%s: shown as %s", c.text, Redact(c.text))
		}
	}
	c, err := Parse("sqlite:h.db?successes=3d&failures=48h&audit=off", "")
	if err == nil {
		t.Errorf("%+v: successes are kept longer than failures", c.Retention)
	}
	c, err = Parse("sqlite:h.db?successes=3d&failures=96h&audit=off", "")
	if want := (Retention{3 * day, 4 * day, 0}); err != nil || c.Retention != want || c.ElasticJob {
		t.Errorf("%+v %v", c, err)
	}
	for text, want := range map[string]string{
		"postgres://u@h/d?size=50GiB": "", "mysql://u@h/d?size=64MiB": "", "mysql://u@h/d?size=off": "",
		"postgres://u@h/d?size=":       `size: found "", expected off or a size of at least 64MiB, such as 50GiB`,
		"postgres://u@h/d?size=50":     `size: found "50", expected off`,
		"mysql://u@h/d?size=-1GiB":     `size: found "-1GiB", expected off`,
		"mysql://u@h/d?size=unlimited": `size: found "unlimited", expected off`,
		"mysql://u@h/d?siz=1GiB":       `found the option "siz", expected tls, size, `,
		"sqlite:/x?size=1GiB":          "size: found it for SQLite, whose file is bounded by the host's setting --history-size",
	} {
		c, err := Parse(text, "")
		if (err == nil) != (want == "") || (err != nil && !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %+v, %v; want %q", text, c, err, want)
		}
	}
	if c, err = Parse("postgres://u:pw@h/d?size=1.5GiB", ""); err != nil || c.Size != 3<<29 || c.Where != "postgres://u@h/d" {
		t.Errorf("%+v %v", c, err)
	}
	if c, err = Parse("mysql://u@h/d", ""); err != nil || c.Size != 0 || c.Retention != (Retention{7 * day, 90 * day, 400 * day}) || !c.Shared() {
		t.Errorf("%+v %v", c, err)
	}
}

// FuzzParse: no text panics, and no error or name shows a password.
func FuzzParse(f *testing.F) {
	for _, s := range []string{"sqlite:/x", "postgres://u:PASSWORDx@h/d", "mysql://u:PASSWORDx@h/d?tls=true", "postgres://h/d?password=PASSWORDx", "mysql://u:PASSWORDx%zz@h/d", "postgres://u:PASSWORDx@h:x/d", "x://u:PASSWORDx@", "postgres://u:PASSWORDx@[::1/d"} {
		f.Add(s, "")
	}
	f.Add("postgres://h/d", "u:PASSWORDx")
	f.Fuzz(func(t *testing.T, text, credentials string) {
		c, err := Parse(text, credentials)
		if (c == nil) == (err == nil) {
			t.Fatalf("%+v %v", c, err)
		}
		// A text in which the password stands where a password does.
		rest, found := strings.CutPrefix(text, "postgres://u:PASSWORDx@")
		if !found || strings.Contains(rest, "PASSWORDx") {
			return
		}
		shown := Redact(text)
		if err != nil {
			shown += err.Error()
		} else {
			shown += c.Where
		}
		if strings.Contains(shown, "PASSWORDx") {
			t.Errorf("%q: %s", text, shown)
		}
	})
}

func TestDays(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 23, 23, 59, 59, 999, time.UTC)
	if name := partitionName("t", dayOf(at.UnixNano())); name != "t_20261123" {
		t.Error(name)
	}
	if dayOf(0) != 0 || dayOf(-1) != -1 || dayOf(int64(day)) != 1 {
		t.Error(dayOf(0), dayOf(-1), dayOf(int64(day)))
	}
}
