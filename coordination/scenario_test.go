package coordination_test

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	co "github.com/wasmjob/wasmjob/coordination"
	"github.com/wasmjob/wasmjob/coordination/admin/cleanup"
	"github.com/wasmjob/wasmjob/coordination/admin/operate"
	"github.com/wasmjob/wasmjob/coordination/jobconfig"
	"github.com/wasmjob/wasmjob/coordination/recipe/guarantee"
	"github.com/wasmjob/wasmjob/coordination/recipe/permit"
	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/coordination/registry/registrytest"
	"github.com/wasmjob/wasmjob/coordination/tree"
)

// TestScenario runs the scripts in testdata/scenarios. A script is a story:
// text that explains, and blocks of commands with what they print below a
// line of dashes. "go test ./coordination -run Scenario -update" rewrites what
// is printed; read the difference before committing it.
//
// The hosts are simulated, the decisions and the registry are real. "settle"
// lets one host after the other look and take one step, until nobody has
// anything to do. After every step it is checked that no item is assigned to
// two hosts, and that none runs on two.
func TestScenario(t *testing.T) { runScenarios(t, inMemory) }

var update = flag.Bool("update", false, "rewrite the expected output of the scenario scripts")

// runScenarios runs all scripts against a registry.
func runScenarios(t *testing.T, start func(testing.TB) registrytest.Server) {
	scripts, err := filepath.Glob("testdata/scenarios/*.txt")
	if err != nil || len(scripts) == 0 {
		t.Fatalf("no scripts: %v", err)
	}
	for _, path := range scripts {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txt"), func(t *testing.T) {
			t.Parallel()
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			s := script{cluster: newCluster(t, start(t)), rounds: make(map[int64]int)}
			got := s.run(string(text))
			if got == string(text) {
				return
			}
			if *update {
				if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			t.Errorf("%s went another way:\n%s", path, difference(string(text), got))
		})
	}
}

// difference lists the lines from the first that differs.
func difference(want, got string) string {
	w, g := strings.Split(want, "\n"), strings.Split(got, "\n")
	n := 0
	for n < len(w) && n < len(g) && w[n] == g[n] {
		n++
	}
	clip := func(lines []string) string { return strings.Join(lines[n:min(n+12, len(lines))], "\n  ") }
	return fmt.Sprintf("line %d\nwant:\n  %s\ngot:\n  %s", n+1, clip(w), clip(g))
}

// script is one script on its way.
type script struct {
	*cluster
	rounds map[int64]int // transaction of a trigger round → its number
}

const dashes = "----"

// run returns the script with what its commands print.
func (s *script) run(text string) string {
	var out strings.Builder
	var commands []string
	lines := strings.Split(text, "\n")
	for n := 0; n < len(lines); n++ {
		line := lines[n]
		switch {
		case line == dashes:
			out.WriteString(dashes + "\n")
			var printed strings.Builder
			s.say = func(format string, args ...any) { fmt.Fprintf(&printed, format+"\n", args...) }
			for _, command := range commands {
				if err := s.command(command); err != nil {
					s.say("error: %v", err)
				}
				s.invariants()
			}
			out.WriteString(s.tidy(printed.String()))
			commands = nil
			for n+1 < len(lines) && lines[n+1] != "" {
				n++ // what was expected
			}
			continue
		case line == "", strings.HasPrefix(line, "#"):
			if len(commands) > 0 {
				s.t.Fatalf("line %d: commands without a line %q below them", n+1, dashes)
			}
		default:
			commands = append(commands, line)
		}
		out.WriteString(line)
		if n+1 < len(lines) {
			out.WriteByte('\n')
		}
	}
	return out.String()
}

// disableUntil has an operator disable something until a time.
func (s *script) disableUntil(words []string, until time.Time) error {
	word := said
	word.Until = until.UnixMilli()
	return s.operate(func(ctx context.Context, r registry.Center) error {
		var err error
		switch words[1] {
		case "item":
			_, err = operate.SetItem(ctx, r, s.layout, word, s.number(words[2]), false)
		case "server":
			_, err = operate.SetServers(ctx, r, s.layout, word, false, words[2])
		default:
			_, err = operate.SetServers(ctx, r, s.layout, word, false)
		}
		return err
	})
}

// over ends what is disabled until a time, if that is over.
func (s *script) over(what string) error {
	return s.operate(func(ctx context.Context, r registry.Center) error {
		var of string
		var word tree.Word
		var done bool
		var err error
		if what == "job" {
			done, err = operate.EndDisabled(ctx, r, s.layout, s.now, &of, &word)
		} else {
			done, err = operate.EndItem(ctx, r, s.layout, s.number(what), s.now, &word)
		}
		s.say("%s", strings.TrimRight(fmt.Sprintf("over: %v %q %s", done, of, word.By), " "))
		return err
	})
}

var (
	idPattern      = regexp.MustCompile(`\d+\.\d+\.\d+\.\d+@-@([A-Z]\d*)`)
	triggerPattern = regexp.MustCompile(`"(trigger|round)":(\d+)`)
	waitsPattern   = regexp.MustCompile(`that of \S+Z,`)
	roundPattern   = regexp.MustCompile(`\bt(\d+)\b`)
)

// tidy makes what a registry numbers the same on every run, and calls hosts
// by their names.
func (s *script) tidy(text string) string {
	text = strings.ReplaceAll(text, s.layout.Sibling(), "~")
	text = strings.ReplaceAll(text, s.layout.Root(), "")
	text = idPattern.ReplaceAllString(text, "$1")
	text = waitsPattern.ReplaceAllString(text, "that of then,")
	text = triggerPattern.ReplaceAllString(text, `"$1":t$2`)
	return roundPattern.ReplaceAllStringFunc(text, func(round string) string {
		n, err := strconv.ParseInt(round[1:], 10, 64)
		if err != nil {
			return round
		}
		return s.round(n)
	})
}

// round numbers trigger rounds from 1 in the order in which they are seen.
func (s *script) round(zxid int64) string {
	if s.rounds[zxid] == 0 {
		s.rounds[zxid] = len(s.rounds) + 1
	}
	return fmt.Sprintf("round %d", s.rounds[zxid])
}

// command carries out one line.
func (s *script) command(line string) error {
	words := strings.Fields(line)
	arg := func(n int) string {
		if n < len(words) {
			return words[n]
		}
		s.t.Fatalf("%q: word %d is missing", line, n)
		return ""
	}
	settings := func(from int, c *jobconfig.Configuration) {
		for _, w := range words[min(from, len(words)):] {
			s.set(c, w)
		}
	}
	switch words[0] {
	case "at":
		if rest, ok := strings.CutPrefix(arg(1), "+"); ok {
			d, err := time.ParseDuration(rest)
			if err != nil {
				s.t.Fatalf("%q: %v", line, err)
			}
			s.now = s.now.Add(d)
			return nil
		}
		s.now = s.instant(arg(1))
	case "job":
		settings(1, &s.file)
	case "host":
		s.addHost(arg(1), arg(2))
	case "old": // a host of a version that knows no arguments of triggers
		s.addHost(arg(1), arg(2)).old = true
	case "queueing": // a host that begins queued triggers
		s.addHost(arg(1), arg(2)).knowsQueue = true
	case "java": // a Java host, started at once
		p := s.addJava(arg(1), arg(2))
		p.start()
		p.rest()
	case "restart":
		p := s.java(arg(1))
		p.start()
		p.rest()
	case "instant": // the instant comes on a Java host
		p := s.java(arg(1))
		p.due()
		p.rest()
	case "ends": // what runs on a Java host ends
		p := s.java(arg(1))
		p.finish = true
		p.rest()
	case "dies":
		s.java(arg(1)).crash()
	case "shutdown":
		s.java(arg(1)).shutdown()
	case "requests": // requests J 3: and no more
		p := s.java(arg(1))
		p.due()
		for range s.number(arg(2)) {
			p.advance(func(int) int { return 0 })
		}
	case "start": // a Java host, which gets on by requests
		p := s.addJava(arg(1), arg(2))
		p.start()
		for range s.number(arg(3)) {
			p.advance(func(int) int { return 0 })
		}
	case "join":
		h, definition := s.host(arg(1)), s.file
		settings(2, &definition)
		applied, err := h.join(definition)
		if err != nil {
			return err
		}
		s.joined(h, applied)
	case "define":
		h, definition := s.host(arg(1)), s.file
		settings(2, &definition)
		var applied co.Applied
		if err := h.perform(moves.ApplyDefinition(s.layout, definition, h.former, nil, &applied)); err != nil {
			return err
		}
		h.former = tree.Digest(definition.YAML())
		s.joined(h, applied)
	case "settle":
		s.settle()
	case "step":
		_, err := s.host(arg(1)).step()
		return err
	case "fire":
		return s.host(arg(1)).fire(s.instant(arg(2)))
	case "complete": // complete A 0,1 OK offset=3; complete A none OK
		items, err := tree.ParseItems(strings.TrimSuffix(arg(2), "none"))
		if err != nil {
			return err
		}
		offset := ""
		if len(words) > 4 {
			offset = strings.TrimPrefix(words[4], "offset=")
		}
		return s.host(arg(1)).complete(items, arg(3), offset)
	case "offset":
		return s.saveOffset(s.host(arg(1)), arg(2), arg(3))
	case "crash":
		s.host(arg(1)).crash()
	case "die": // die A after 2 commits
		h, left := s.host(arg(1)), s.number(arg(3))
		h.plan = func(_ int, op string) registrytest.Fault {
			if op != "commit" {
				return registrytest.NoFault
			}
			if left--; left < 0 {
				return registrytest.ExpireBefore
			}
			return registrytest.NoFault
		}
	case "expire": // the session ends and the process goes on with a new one
		h := s.host(arg(1))
		h.crash()
		h.dial()
	case "leave":
		h := s.host(arg(1))
		if err := h.look(); err != nil {
			return err
		}
		return h.leave("left", h.running())
	case "drain":
		h := s.host(arg(1))
		h.leaving = true
		return h.perform(moves.Drain(&h.Member, tree.HostDetail{}))
	case "recover":
		h := s.host(arg(1))
		if err := h.look(); err != nil {
			return err
		}
		_, err := h.recoverAll(true)
		return err
	case "sweep":
		h := s.host(arg(1))
		if err := h.look(); err != nil {
			return err
		}
		var swept cleanup.Swept
		err := h.perform(moves.Sweep(&h.Member, s.now, &swept))
		for _, path := range swept.Nodes {
			s.say("%s: sweeps %s", h.name, path)
		}
		return err
	case "set":
		return s.edit(func(c *jobconfig.Configuration) { settings(1, c) })
	case "disable", "enable":
		enable := words[0] == "enable"
		if n := slices.Index(words, "until"); n > 0 { // disable job until 10:00:30
			until := s.instant(words[n+1])
			return s.disableUntil(words[:n], until)
		}
		switch arg(1) {
		case "item":
			return s.operate(moves.SetItem(s.layout, s.number(arg(2)), enable))
		case "server":
			return s.operate(moves.SetServers(s.layout, enable, arg(2)))
		case "job":
			return s.operate(moves.SetServers(s.layout, enable))
		}
		s.t.Fatalf("%q: expected item, server or job", line)
	case "over": // over 2: of an item; over job: of servers
		return s.over(arg(1))
	case "release": // release all, release 2
		item := -1
		if arg(1) != "all" {
			item = s.number(arg(1))
		}
		var out operate.Released
		err := s.operate(moves.Release(s.layout, item, s.now, &out))
		s.say("operator: releases %s", orNone(out.Items))
		return err
	case "rewind": // rewind 0 line-100: an operator sets the offset of an item
		return s.setOffset(s.number(arg(1)), arg(2))
	case "kill": // kill all, kill 2, kill run ID
		return s.kill(words[1:])
	case "kills": // kills A: what A is asked to end
		s.kills(s.host(arg(1)))
	case "trigger": // trigger, trigger 0,3-5, trigger 0,3-5 TEXT, trigger - TEXT: with items, with a parameter
		var items string
		var param *string
		if len(words) > 1 {
			items = strings.TrimPrefix(arg(1), "-")
		}
		if len(words) > 2 {
			param = &words[2]
		}
		args, err := tree.NewTriggerArgs(items, param)
		if err == nil {
			err = s.operate(moves.TriggerWith(s.layout, args))
		}
		return err
	case "advance": // a host has begun items of a round, and looks into the queue
		dropped, err := operate.AdvanceQueue(s.ctx, s.op, s.layout)
		for _, d := range dropped {
			s.say("dropped %s: %v", d.Args.Data(), d.Why)
		}
		return err
	case "follow", "unfollow": // follow NAME: a job comes after this one
		return s.operate(func(ctx context.Context, r registry.Center) error {
			if words[0] == "follow" {
				return co.Follow(ctx, r, arg(1), s.layout)
			}
			return co.Unfollow(ctx, r, s.layout, arg(1))
		})
	case "idle": // idle A 2 10:00:05: A notes that an item does not run for an instant, because it is disabled
		h := s.host(arg(1))
		done, err := h.SettleItems(s.ctx, s.now, tree.Settled{Fire: tree.Fire{Instant: s.instant(arg(3)).UnixMilli()}, Total: h.View.Config.ShardingTotalCount,
			Idle: tree.RangesOf(tree.Items{s.number(arg(2))})})
		if !done {
			s.say("%s: notes nothing", h.name)
		}
		return err
	case "caused": // caused 100: a trigger of the jobs before triggers this one
		why, err := operate.TriggerAfter(s.ctx, s.op, s.layout, tree.ChainedRound{Root: int64(s.number(arg(1)))})
		if why != "" {
			s.say("not triggered: %s", why)
		}
		return err
	case "backfill": // backfill begin, backfill give, backfill end: of two midnights long ago
		b := tree.Backfill{From: 86_400_000, To: 2 * 86_400_000, Instants: []int64{86_400_000, 2 * 86_400_000}, Every: 1000, By: "ann", Since: 1}
		switch arg(1) {
		case "begin":
			return operate.StartBackfill(s.ctx, s.op, s.layout, b)
		case "give":
			all, err := operate.ReadBackfills(s.ctx, s.op, s.layout)
			if err != nil || all.Now == nil {
				return err
			}
			return operate.GiveInstant(s.ctx, s.op, s.layout, *all.Now, s.now)
		}
		_, err := operate.CancelBackfill(s.ctx, s.op, s.layout, "bob", s.now)
		return err
	case "console": // console A B: ElasticJob's console triggers, and comes no further than these
		return s.console(words[1:])
	case "stop": // stop A; stop job: all of ours
		if arg(1) != "job" {
			return s.operate(moves.StopInstance(s.layout, s.host(arg(1)).Self.ID))
		}
		return s.operate(moves.Stop(s.layout, tree.WholeJob, s.children(s.layout.Root()+"/instances")...))
	case "come": // come A: a host that was stopped may come back
		return s.operate(moves.Start(s.layout, s.host(arg(1)).Self.ID))
	case "restore":
		return s.operate(moves.Restore(s.layout))
	case "remove":
		return s.operate(moves.Remove(s.layout, len(words) > 1 && words[1] == "purge"))
	case "write", "put", "erase", "pin", "last", "garble": // an operator writes nodes by hand
		return s.hand(words[0], arg(1), strings.Join(words[2:], " "))
	case "repair": // repair A: and all items
		h, repaired := s.host(arg(1)), []string(nil)
		if err := h.look(); err != nil {
			return err
		}
		err := h.perform(moves.Repair(&h.Member, co.Repairing{Detail: tree.HostDetail{State: tree.DetailReady}, Items: true}, &repaired))
		s.say("%s: repairs %s", h.name, strings.Join(repaired, " "))
		return err
	case "bury": // bury A B C: A buries those of B and C who left nothing unfinished
		h, left := s.host(arg(1)), []string(nil)
		var dead []string
		for _, name := range words[2:] {
			dead = append(dead, s.host(name).Self.ID)
		}
		if err := h.look(); err != nil {
			return err
		}
		err := h.perform(moves.Bury(&h.Member, dead, true, &left))
		s.say("%s: leaves to a recovery %s", h.name, strings.Join(left, " "))
		return err
	case "retire": // retire 100h: servers without a host, if so much time has gone by
		d, err := time.ParseDuration(arg(1))
		if err != nil {
			return err
		}
		retired, err := cleanup.RetireServers(s.ctx, s.op, s.layout, time.Now().Add(d), 24*time.Hour) // the registry goes by the machine's clock
		s.say("retires %s", strings.Join(retired, " "))
		return err
	case "keys": // keys 100h: of limits and rates that are not used, if so much time has gone by
		d, err := time.ParseDuration(arg(1))
		if err != nil {
			return err
		}
		removed, err := cleanup.Keys(s.ctx, s.op, s.layout.Namespace, time.Now().Add(d))
		s.say("removes the nodes of %d limits", removed)
		return err
	case "time":
		return s.operate(moves.RegistryTime(s.layout, new(time.Time)))
	case "listen", "unlisten": // listen A NAME
		h := s.host(arg(1))
		return h.perform(func(ctx context.Context, r registry.Center) error {
			h.Registry = r
			if words[0] == "listen" {
				return h.NoteListener(ctx, arg(2), tree.Listening{Host: h.Self.ID, Export: arg(2)})
			}
			return h.EndListener(ctx, arg(2))
		})
	case "announce":
		h := s.host(arg(1))
		return h.perform(with(&h.Member, func(ctx context.Context) error { return h.Announce(ctx, tree.HostDetail{State: tree.DetailReady}) }))
	case "enabled": // enabled A: its server is, and it notes since when the job is
		h := s.host(arg(1))
		if err := h.look(); err != nil {
			return err
		}
		return h.perform(with(&h.Member, h.NoteEnabled))
	case "unheard": // unheard A: the answer to its next commit is lost, and the registry away after it
		h, lost := s.host(arg(1)), false
		h.plan = func(_ int, op string) registrytest.Fault {
			if op == "commit" && !lost {
				lost = true
				return registrytest.LostAnswer
			}
			if !lost {
				return registrytest.NoFault
			}
			return registrytest.Refused
		}
	case "heard": // heard A: the registry is back for it
		s.host(arg(1)).plan = nil
	case "edit": // edit total=3
		return s.operate(func(ctx context.Context, r registry.Center) error {
			_, _, err := operate.EditConfig(ctx, r, s.layout, -1, func(c jobconfig.Configuration) (jobconfig.Configuration, error) {
				settings(1, &c)
				return c, nil
			})
			return err
		})
	case "arrive":
		return s.arrive(s.host(arg(1)), arg(2), arg(3))
	case "limit": // limit A 0-2 max=2: the host draws tickets, and keeps those for its items that are granted
		return s.draw(s.host(arg(1)), arg(2), s.number(strings.TrimPrefix(arg(3), "max=")))
	case "take": // take A 3: another program deletes the ticket of an item
		return s.operate(func(ctx context.Context, r registry.Center) error {
			return permit.Return(ctx, r, s.host(arg(1)).permits[s.number(arg(2))])
		})
	case "shares":
		s.shares()
	case "tree":
		s.tree(words[1:])
	default:
		s.t.Fatalf("%q: no such command", line)
	}
	return nil
}

// place is a text in which <A> is the id of host A.
func (s *script) place(text string) string {
	for _, h := range s.hosts {
		text = strings.ReplaceAll(text, "<"+h.name+">", h.Self.ID)
	}
	return text
}

// hand changes a node as a hand would, one of the job's, of our own tree (~) or of the namespace's limits or rates (%): it writes a new one, puts other data into one, erases one, pins one to its own
// session, makes one last that a session held, or garbles one.
func (s *script) hand(what, path, data string) error {
	path = s.place(path)
	if rest, ours := strings.CutPrefix(path, "~/"); ours {
		path = s.layout.Sibling() + "/" + rest
	} else if rest, keys := strings.CutPrefix(path, "%"); keys {
		path = s.layout.NamespaceNode() + "/@-@" + rest
	} else {
		path = s.layout.Root() + "/" + path
	}
	was := s.node(path)
	var ops []registry.Op
	if was.Exists && (what == "pin" || what == "last") {
		ops = append(ops, registry.Delete(path, registry.AnyVersion))
	}
	text := []byte(s.place(data))
	if data == "" {
		text = was.Data
	}
	if what == "write" || what == "pin" {
		ops = append([]registry.Op{registry.Ensure(path[:strings.LastIndexByte(path, '/')])}, ops...)
	}
	switch what {
	case "write":
		ops = append(ops, registry.Create(path, text))
	case "put":
		ops = append(ops, registry.Set(path, text, registry.AnyVersion))
	case "garble":
		ops = append(ops, registry.Set(path, []byte("no: [configuration"), registry.AnyVersion))
	case "erase":
		ops = append(ops, registry.Delete(path, registry.AnyVersion))
	case "pin":
		ops = append(ops, registry.CreateEphemeral(path, text))
	case "last":
		ops = append(ops, registry.Create(path, text))
	}
	_, err := s.op.Commit(s.ctx, ops...)
	return err
}

// draw has a host draw tickets for items under the limit db, in one commit. Items whose ticket waits
// get none.
func (s *script) draw(h *simHost, list string, most int) error {
	items, err := tree.ParseItems(list)
	if err != nil {
		return err
	}
	if h.permits == nil {
		h.permits = make(map[int]string)
	}
	key := permit.Key(s.layout, "db")
	made, err := permit.Take(s.ctx, h.Registry, permit.Holder{Host: h.Self.ID, Job: s.layout.Job}, permit.Draw{Key: key, Count: len(items), Max: most})
	if err != nil {
		return err
	}
	lines, err := permit.Lines(s.ctx, h.Registry, key)
	if err != nil {
		return err
	}
	for n, ticket := range made[key] {
		p := permit.Places(lines[key], made[key], most)[ticket.Path]
		if !p.Granted() {
			s.say("%s: waits for a permit for %d, behind %d, watches %s", h.name, items[n], p.Before, strings.TrimPrefix(p.Watch(key).Path, tree.Limits(s.layout.Namespace)+"/"))
			if err := permit.Return(s.ctx, h.Registry, ticket.Path); err != nil {
				return err
			}
			continue
		}
		h.permits[items[n]] = ticket.Path
		s.say("%s: has a permit for %d", h.name, items[n])
	}
	return nil
}

// console triggers as ElasticJob does: the whole subtree goes, and then every
// instance gets its node, in a transaction of its own.
func (s *script) console(names []string) error {
	root := s.layout.Root() + "/trigger"
	left, err := s.op.Read(s.ctx, registry.Children(root))
	if err != nil {
		return err
	}
	var ops []registry.Op
	for _, id := range left[0].Names {
		ops = append(ops, registry.Delete(root+"/"+id, registry.AnyVersion))
	}
	if left[0].Exists {
		ops = append(ops, registry.Delete(root, registry.AnyVersion))
		if _, err := s.op.Commit(s.ctx, ops...); err != nil {
			return err
		}
	}
	for _, name := range names {
		if _, err := s.op.Commit(s.ctx, registry.Ensure(root), registry.Create(root+"/"+s.host(name).Self.ID, nil)); err != nil {
			return err
		}
	}
	return nil
}

func (s *script) java(name string) *javaPeer {
	for _, p := range s.javas {
		if p.name == name {
			return p
		}
	}
	s.t.Fatalf("no Java host %s", name)
	return nil
}

func (s *script) joined(h *simHost, a co.Applied) {
	switch {
	case a.Created:
		s.say("%s: made the job", h.name)
	case len(a.Changed) > 0:
		s.say("%s: changed %s", h.name, strings.Join(a.Changed, ", "))
	}
	if a.Superseded {
		s.say("%s: the definition is superseded", h.name)
	}
	if len(a.Kept) > 0 {
		s.say("%s: the registry differs and stays: %s", h.name, strings.Join(a.Kept, ", "))
	}
}

func (s *script) set(c *jobconfig.Configuration, setting string) {
	key, value, ok := strings.Cut(setting, "=")
	if !ok {
		s.t.Fatalf("%q is not a setting", setting)
	}
	on := value == "true"
	switch key {
	case "total":
		c.ShardingTotalCount = s.number(value)
	case "failover":
		c.Failover = on
	case "misfire":
		c.Misfire = on
	case "monitor":
		c.MonitorExecution = on
	case "disabled":
		c.Disabled = on
	case "overwrite":
		c.Overwrite = on
	case "static":
		c.StaticSharding = on
	case "strategy":
		c.JobShardingStrategyType = value
	case "deaths":
		if c.Props = maps.Clone(c.Props); c.Props == nil {
			c.Props = make(map[string]string)
		}
		c.Props[jobconfig.PropMaxHostDeaths] = value
	case "overlap":
		if c.Props = maps.Clone(c.Props); c.Props == nil {
			c.Props = make(map[string]string)
		}
		c.Props["wasm.overlap"] = value
	case "parameter":
		c.JobParameter = value
	case "description":
		c.Description = value
	default:
		s.t.Fatalf("no setting %q", key)
	}
}

func (s *script) number(text string) int {
	n, err := strconv.Atoi(text)
	if err != nil {
		s.t.Fatalf("%q is not a number", text)
	}
	return n
}

func (s *script) instant(text string) time.Time {
	t, err := time.Parse("15:04:05", text)
	if err != nil {
		s.t.Fatalf("%q is not a time", text)
	}
	return time.Date(start.Year(), start.Month(), start.Day(), t.Hour(), t.Minute(), t.Second(), 0, time.UTC)
}

func (s *script) saveOffset(h *simHost, item, text string) error {
	i := s.number(item)
	it := h.items[i]
	if it == nil {
		return fmt.Errorf("%s has no item %d", h.name, i)
	}
	var out co.Saved
	err := h.perform(moves.SaveOffsets(s.layout, map[int]co.Ended{i: {State: it.state, Offset: []byte(text), HasOffset: true}}, &out))
	if err != nil {
		return err
	}
	if state, ok := out.Items[i]; ok {
		it.state = state
		s.say("%s: the offset of %d is durable", h.name, i)
		return nil
	}
	s.say("%s: %d is no longer its own: the offset is refused", h.name, i)
	return nil
}

func (s *script) arrive(h *simHost, phase, items string) error {
	p := guarantee.Completed
	if phase == "started" {
		p = guarantee.Started
	}
	mine, err := tree.ParseItems(items)
	if err != nil {
		return err
	}
	last := false
	if err := h.perform(moves.Arrive(s.layout, h.View.Self, p, mine, h.View.Config.ShardingTotalCount, &last)); err != nil {
		return err
	}
	if last {
		s.say("%s: is the last, it runs the listener", h.name)
		if err := h.perform(moves.ClearGuarantee(s.layout, p)); err != nil {
			return err
		}
	} else {
		s.say("%s: waits", h.name)
	}
	return nil
}

// shares prints who owns what.
func (s *script) shares() {
	shares := s.assignments()
	var ids []string
	for id := range shares {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	for _, id := range ids {
		s.say("%s owns %s", id, orNone(shares[id]))
	}
	var d tree.Division
	if json.Unmarshal(s.node(s.layout.Sibling()+"/assignment").Data, &d) == nil && len(d.Pending) > 0 {
		s.say("%s will move when completed", d.Pending)
	}
}

// tree prints both trees, or the parts of them that are named. The skeleton's
// empty directories are left out, unless all is asked for.
func (s *script) tree(parts []string) {
	for _, root := range []string{s.layout.Root(), s.layout.Sibling()} {
		s.printNode(root, parts)
	}
}

func (s *script) printNode(path string, parts []string) {
	data, names := s.node(path), s.children(path)
	if !data.Exists {
		return
	}
	short := strings.TrimPrefix(strings.Replace(path, s.layout.Sibling(), "/~", 1), s.layout.Root())
	show := len(data.Data) > 0 || len(names) == 0 && (strings.Count(short, "/") > 2 || len(parts) > 0)
	if len(parts) > 0 {
		show = show && slices.ContainsFunc(parts, func(p string) bool { return strings.HasPrefix(short+"/", "/"+p+"/") })
	}
	if show {
		mark := ""
		if data.Ephemeral {
			mark = " (ephemeral)"
		}
		s.say("%s", strings.TrimRight(fmt.Sprintf("%-34s%s%s", strings.TrimPrefix(idPattern.ReplaceAllString(short, "$1"), "/"), s.value(short, data.Data), mark), " "))
	}
	for _, name := range names {
		// Below what was not asked for nothing is read: there may be much.
		below := short + "/" + name + "/"
		if len(parts) == 0 || slices.ContainsFunc(parts, func(p string) bool {
			return strings.HasPrefix(below, "/"+p+"/") || strings.HasPrefix("/"+p+"/", below)
		}) {
			s.printNode(path+"/"+name, parts)
		}
	}
}

// value prints a node's data so that people can read it.
func (s *script) value(path string, data []byte) string {
	switch {
	case len(data) == 0:
		return "-"
	case path == "/config" || path == "/~/definition":
		c, _, err := jobconfig.Parse(data)
		if err != nil {
			return "(unreadable)"
		}
		return fmt.Sprintf("total=%d failover=%v misfire=%v monitor=%v", c.ShardingTotalCount, c.Failover, c.Misfire, c.MonitorExecution)
	case strings.HasPrefix(path, "/instances/"):
		return strings.ReplaceAll(strings.TrimSpace(string(data)), "\n", ", ")
	case path == "/~/sharding/"+tree.BackfillName:
		b, _ := tree.ParseBackfill(data)
		return fmt.Sprintf("%d of %d instants given out", b.Done, b.Total)
	case path == "/~/sharding/"+tree.EndsName:
		return s.ends(data)
	case path == "/~/sharding/"+tree.QueueName:
		var list []string
		for _, q := range tree.ParseQueue(data, 1).Triggers {
			list = append(list, "{"+string(q.Args.Data())+"}")
		}
		return strings.Join(list, " ")
	case path == "/trigger":
		return queuedNumber.ReplaceAllString(string(data), `"queued":N`)
	case strings.HasPrefix(path, "/~/sharding/"):
		return s.record(data)
	}
	text := string(bytes.ReplaceAll(data, []byte("\n"), []byte(" ")))
	return instantPattern.ReplaceAllStringFunc(text, func(m string) string {
		ms, err := strconv.ParseInt(m, 10, 64)
		if err != nil {
			return m
		}
		return clock(ms)
	})
}

var queuedNumber = regexp.MustCompile(`"queued":[0-9]+`)

var instantPattern = regexp.MustCompile(`\b1[0-9]{12}\b`)

func clock(ms int64) string { return time.UnixMilli(ms).UTC().Format("15:04:05") }

// ends prints how fires have ended.
func (s *script) ends(data []byte) string {
	e := tree.ParseEnds(data)
	text := "for " + strings.Join(e.Followers, ",") + " since " + clock(e.Since)
	for _, f := range e.Fires {
		id := clock(f.Instant)
		if f.Trigger != 0 {
			id = fmt.Sprintf("t%d", f.Trigger)
		}
		text += "; " + id
		switch {
		case f.Ended == 0:
			text += fmt.Sprintf(" ok %s failed %s idle %s", orNone(f.OK.Items()), orNone(f.Failed.Items()), orNone(f.Idle.Items()))
		case f.Success:
			text += " a success at " + clock(f.Ended)
		default:
			text += " a failure at " + clock(f.Ended)
		}
	}
	return text
}

// record prints an item's record.
func (s *script) record(data []byte) string {
	var r tree.Record
	if json.Unmarshal(data, &r) != nil {
		return string(data)
	}
	text := "newest " + clock(r.Instant)
	if r.Trigger != 0 {
		text += fmt.Sprintf(" and t%d", r.Trigger)
	}
	if r.Begun == 0 {
		return text + ", never run"
	}
	text += fmt.Sprintf(", %s by %s %s", r.Source, r.Owner, clock(r.Begun))
	if r.Open() {
		text += " open"
	} else {
		text += "-" + clock(r.Ended) + " " + r.Outcome
	}
	if r.Owed != "" {
		text += ", owes"
		for _, at := range r.OwedInstants() {
			text += " " + clock(at)
		}
	}
	if r.Deaths > 0 {
		text += fmt.Sprintf(", %d died (%s)", r.Deaths, r.Died)
	}
	if r.Held != 0 {
		text += ", held back since " + clock(r.Held)
	}
	if r.Reason != "" {
		text += ": " + r.Reason
	}
	return text
}

// kill asks hosts to end runs.
func (s *script) kill(words []string) error {
	k := operate.Killing{Layout: s.layout, Item: -1, By: "op", Grace: 5 * time.Second, Now: s.now}
	switch {
	case words[0] == "run":
		k.Run = words[1]
	case words[0] != "all":
		k.Item = s.number(words[0])
	}
	var targets []operate.KillTarget
	if err := s.operate(moves.AskKill(k, &targets)); err != nil {
		return err
	}
	if len(targets) == 0 {
		s.say("operator: nothing of that runs")
	}
	for _, t := range targets {
		switch {
		case t.Java:
			s.say("operator: %d runs on the Java host %s, which cannot be asked", t.Item, t.Host)
		case t.Gone:
			s.say("operator: %s is gone, and %d is not to be taken over", t.Host, t.Item)
		default:
			s.say("operator: asks %s to end %d", t.Host, t.Item)
		}
	}
	return nil
}

// kills ends what a host is asked to end.
func (s *script) kills(h *simHost) {
	end, _ := h.asked()
	s.say("%s: is to end %s", h.name, orNone(end))
	if len(end) > 0 {
		if err := h.complete(end, tree.OutcomeCancelled, ""); err != nil {
			s.say("%s: %v", h.name, err)
		}
	}
}

// setOffset is an operator's change of an item's offset.
func (s *script) setOffset(item int, offset string) error {
	var kept operate.Kept
	if err := s.operate(moves.ChangeKept(s.layout, item, s.now, writes(offset), &kept)); err != nil {
		return err
	}
	s.say("operator: sets the offset of %d to %s", item, kept.Data)
	return nil
}
