package e2e_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/host/event"
)

// blocks are the commands of docs/backup.md, in the order of the page.
func blocks(t *testing.T) (list []string) {
	t.Helper()
	page, err := os.ReadFile("../../docs/backup.md")
	if err != nil {
		t.Fatal(err)
	}
	for n, part := range strings.Split(string(page), "```") {
		if text, ok := strings.CutPrefix(part, "sh\n"); ok && n%2 == 1 {
			list = append(list, text)
		}
	}
	if len(list) != 4 {
		t.Fatalf("the page has %d blocks of commands", len(list))
	}
	return list
}

// follow runs the commands of the page with other places in them, each line by itself; systemctl starts and stops the host.
func (p *place) follow(commands string, places *strings.Replacer, stop, start func()) (out string) {
	p.t.Helper()
	bin := p.path("bin")
	if err := os.MkdirAll(bin, 0o755); err != nil {
		p.t.Fatal(err)
	}
	if err := os.Symlink(wasmjob(p.t), filepath.Join(bin, "wasmjob")); err != nil && !os.IsExist(err) {
		p.t.Fatal(err)
	}
	for line := range strings.Lines(places.Replace(commands)) {
		switch line {
		case "systemctl stop wasmjob\n":
			stop()
			continue
		case "systemctl start wasmjob\n":
			start()
			continue
		}
		ctx, cancel := context.WithTimeout(p.t.Context(), 2*patience)
		c := exec.CommandContext(ctx, "sh", "-ec", line)
		c.Env, c.Dir = append(p.env(), "PATH="+bin+":"+os.Getenv("PATH")), p.dir
		var errs bytes.Buffer
		c.Stderr = &errs
		text, err := c.Output()
		cancel()
		if err != nil {
			p.t.Fatalf("%s: %v\n%s%s", line, err, text, &errs)
		}
		out += string(text)
	}
	return out
}

// TestBackupPage: who follows the page has the offset of the backup back, the files, and fences above all that the history has
// seen, also those that were given out after the backup.
func TestBackupPage(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.guestJob("held", "jobName: held", "shardingTotalCount: 1")
	p.put("grants.yaml", []byte("grants: []\n"))
	data, backups := p.path("data"), p.path("backups")
	if err := os.Mkdir(backups, 0o755); err != nil {
		t.Fatal(err)
	}
	flags := []string{"--data", data, "--grants", p.path("grants.yaml")}
	h := p.start(flags...)
	fire := func() seen {
		t.Helper()
		at := h.mark()
		p.must("job", "run", "held", "--wait", "--timeout", "1m")
		return h.of("held", at, kind(event.ItemCompleted), source(abi.SourceTrigger), outcome(abi.OutcomeOK))
	}
	h.of("held", 0, kind(event.Assigned))
	fire()
	p.must("job", "offset", "held", "--item", "0", "--set", "seven")
	places := strings.NewReplacer("/var/backups/wasmjob", backups, "/var/lib/wasmjob", data, "/etc/wasmjob/restored", p.path("restored"))
	page := blocks(t)

	said := p.follow(page[0], places, nil, nil)
	for _, text := range []string{"1 job (held)", "grants.yaml (grants)", "the history (" + h.history + ")", "definitions and modules (" + p.path("plugins") + ")"} {
		if strings.Count(said, text) != 2 { // made, and shown
			t.Errorf("%q is not in\n%s", text, said)
		}
	}
	file := filepath.Join(backups, "jobs.backup")
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v: %v", info, err)
	}
	p.refused(1, []string{"jobs.backup is there; name a file that is not, or remove it"}, "registry", "backup", "create", file)
	p.refused(1, []string{"in use by another host"}, "registry", "backup", "restore", file, "--data", data, "--above", "1")

	p.must("job", "offset", "held", "--item", "0", "--set", "nine")
	after := fire()
	said = p.follow(page[2], places, func() {
		h.stop()
		if err := os.RemoveAll(data); err != nil { // the machine is lost
			t.Fatal(err)
		}
	}, func() { h = p.start(flags...) })
	for _, text := range []string{"restored namespace wasmjob as it was at", "1 job, ", fmt.Sprintf("numbers: %d is the greatest that is known (in the history %s)", after.Fence, h.history), "not restored: what hosts did since", "held"} {
		if !strings.Contains(said, text) {
			t.Errorf("%q is not in\n%s", text, said)
		}
	}
	if text, err := os.ReadFile(p.path("restored", "grants.yaml")); err != nil || string(text) != "grants: []\n" {
		t.Errorf("%q: %v", text, err)
	}
	h.of("held", 0, kind(event.Assigned))
	if offset := p.must("job", "offset", "held", "--item", "0"); !strings.Contains(offset, "seven") {
		t.Errorf("the offset is not that of the backup:\n%s", offset)
	}
	if again := fire(); again.Fence <= after.Fence || again.Trigger <= after.Trigger {
		t.Errorf("fence %d and round %d after the restore, %d and %d before", again.Fence, again.Trigger, after.Fence, after.Trigger)
	}
	h.stop()
	p.refused(1, []string{"the registry has jobs in this namespace: held; nothing was changed. --replace removes them"}, "registry", "backup", "restore", file, "--data", data)
	if err := os.Rename(h.history, h.history+".away"); err != nil {
		t.Fatal(err)
	}
	p.refused(1, []string{"the history does not say which fences were given out since the backup", "or the greatest fence with --above N"}, "registry", "backup", "restore", file, "--data", data, "--replace")
	for args, want := range map[string]string{
		"":                   "--data DIR is missing, or --zk SERVERS",
		"--data x --zk y:1":  "--data is an embedded registry, --zk another one; leave one of them out",
		"--data x --above 0": "--above 0: expected a number above 0",
	} {
		p.refused(2, []string{want}, append([]string{"registry", "backup", "restore", file}, strings.Fields("--above 1 "+args)...)...)
	}
	p.put("cut.backup", []byte("x"))
	p.refused(1, []string{"cut.backup: it is no backup"}, "registry", "backup", "show", p.path("cut.backup"))
	p.refused(1, []string{"no such file"}, "registry", "backup", "show", p.path("missing.backup"))
}

// TestBackupOfACluster: the same of a namespace in ZooKeeper, which is not written while a host is there.
func TestBackupOfACluster(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.job("held", "shardingTotalCount: 2")
	a := c.add()
	c.divided("held", a)
	place := newPlace(t)
	if err := os.Mkdir(place.path("backups"), 0o755); err != nil {
		t.Fatal(err)
	}
	places := strings.NewReplacer("/var/backups/wasmjob", place.path("backups"), "zk1:2181,zk2:2181,zk3:2181", c.zk, "--namespace prod", "--namespace "+c.ns)
	page := blocks(t)
	if said := place.follow(page[1], places, nil, nil); !strings.Contains(said, "1 job (held)") {
		t.Errorf("%s", said)
	}
	file := place.path("backups", "prod.backup")
	place.refused(1, []string{"hosts are running in namespace " + c.ns, "stop all of them"}, "registry", "backup", "restore", file, "--zk", c.zk, "--namespace", c.ns, "--replace", "--above", "1")
	a.stop()
	said := place.follow(page[3], places, nil, nil)
	if !strings.Contains(said, "numbers: 8589934671 is the greatest that is known (--above)") && !strings.Contains(said, "(in the backup)") {
		t.Errorf("%s", said)
	}
	b := c.add()
	c.divided("held", b)
	at := b.mark()
	b.place.must("job", "run", "held", "--wait", "--timeout", "1m")
	if e := b.of("held", at, kind(event.ItemCompleted), source(abi.SourceTrigger), outcome(abi.OutcomeOK)); e.Fence <= 8589934671 {
		t.Errorf("fence %d", e.Fence)
	}
}
