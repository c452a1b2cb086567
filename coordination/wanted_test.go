package coordination_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	co "github.com/wasmjob/wasmjob/coordination"
	"github.com/wasmjob/wasmjob/coordination/admin/operate"
	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/coordination/tree"
)

// TestDecide: what a host does given what is wanted, its own definition and ElasticJob's
// nodes; every combination.
func TestDecide(t *testing.T) {
	t.Parallel()
	const mine, id = "mine", "10.0.0.1@-@7-a-2"
	word := tree.Word{Off: true}
	definitions := map[string][]byte{"": nil, "mine": []byte(mine), "newer": []byte("newer"), "unknown": []byte("unknown")}
	for _, removed := range []string{"", "mine", "newer", "unknown"} { // with which definition
		for _, stop := range []string{"", "job", "server", "process", "other server", "excepted"} {
			for _, there := range []string{"", "by one of ours", "by another program"} {
				for _, last := range []string{"", "mine", "newer", "unknown"} { // node definition
					var w tree.Wanted
					if removed != "" {
						var list tree.Superseded
						if removed == "newer" {
							list = list.Replace([]byte(mine), []byte("newer"))
						}
						w = w.Gone(tree.Word{}, tree.Digest(definitions[removed]), list)
					}
					w.Stopped = map[string]tree.Words{"": nil, "job": {tree.WholeJob: word}, "server": {"10.0.0.1": word}, "process": {"10.0.0.1@-@7": word},
						"other server": {"10.0.0.2": word, "10.0.0.1@-@8": word}, "excepted": {tree.WholeJob: word, "10.0.0.1@-@7": tree.Word{}}}[stop]
					wanted := registry.Node{Data: w.Data(), Exists: len(w.Data()) > 0, Mzxid: 10}
					config := registry.Node{Exists: there != "", Czxid: 20}
					definition := registry.Node{Exists: last != "", Data: definitions[last], Mzxid: 5}
					superseded := registry.Node{}
					if last == "newer" {
						superseded = registry.Node{Exists: true, Data: tree.Superseded(nil).Replace([]byte(mine), []byte("newer")).Data()}
					}
					if there == "by one of ours" {
						definition.Mzxid = 20
					}

					want := "create"
					known := last == "mine" || last == "newer"
					switch stays := stop == "job" || stop == "server" || stop == "process"; {
					case removed != "" && there == "by one of ours" && last != "":
						want = "undone"
					case stays:
						want = "stopped"
					case removed != "" && there != "":
						want = "returned"
					case there != "":
						want = "join"
					case removed == "mine" || removed == "newer":
						want = "removed"
					case removed == "" && known:
						want = "vanished"
					}
					if got := co.Decide(wanted, config, definition, superseded, id, []byte(mine)); got != want {
						t.Errorf("removed with %q, stopped %q, there %q, definition %q: %s, want %s", removed, stop, there, last, got, want)
					}
				}
			}
		}
	}
}

// TestWordsOfServers: an order to the whole job that another program gives by the nodes of
// servers is found by the host of a server that comes new, and no other.
func TestWordsOfServers(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		states string // of servers 1 to 3: E, D
		words  func(c *chronicle) error
		want   string
	}{
		{"EEE", nil, tree.Enabled},
		{"DDD", nil, tree.Disabled},
		{"DDE", nil, tree.Enabled},
		{"EDD", nil, tree.Enabled},
		{"DDD", func(c *chronicle) error { // one by one: nobody has said it of the job
			return c.operate(moves.SetServers(c.layout, false, "10.0.0.1", "10.0.0.2", "10.0.0.3"))
		}, tree.Enabled},
		{"EEE", func(c *chronicle) error { return c.operate(moves.SetServers(c.layout, false)) }, tree.Enabled},
		{"DDE", func(c *chronicle) error { return c.operate(moves.SetServers(c.layout, false)) }, tree.Disabled},
	} {
		c, _ := group(t, 3, nil)
		if test.words != nil {
			must(t, test.words(c))
		}
		for n, state := range test.states {
			data := map[rune]string{'E': tree.Enabled, 'D': tree.Disabled}[state]
			c.hand(registry.Set(c.layout.Server(fmt.Sprintf("10.0.0.%d", n+1)), []byte(data), registry.AnyVersion))
		}
		for _, ip := range []string{"10.0.0.8", "10.0.0.9"} {
			h := c.addHost("of "+ip, ip)
			must(t, second(h.join(c.file)))
			if got := string(c.node(c.layout.Server(ip)).Data); got != test.want {
				t.Errorf("servers %s: server %s is %s, want %s", test.states, ip, got, test.want)
			}
		}
	}
}

// interrupted is a session that does something before one of its calls.
type interrupted struct {
	registry.Center
	calls, at int
	do        func()
}

func (i *interrupted) call() {
	if i.calls++; i.calls == i.at {
		i.do()
	}
}

func (i *interrupted) Read(ctx context.Context, q ...registry.Query) ([]registry.Node, error) {
	i.call()
	return i.Center.Read(ctx, q...)
}

func (i *interrupted) Commit(ctx context.Context, ops ...registry.Op) ([]registry.Result, error) {
	i.call()
	return i.Center.Commit(ctx, ops...)
}

// TestJoinWhileOperatorsSpeak explores what is said before each of the calls by which a host
// joins, and after the last: it holds for that host, whether it comes alone, in a crowd, to a
// job that is there or to none, on a server that is new or not.
//
// It kills the mutant "join without what is wanted".
func TestJoinWhileOperatorsSpeak(t *testing.T) {
	t.Parallel()
	words := map[string]struct {
		say  func(c *chronicle) move
		held func(c *chronicle, h *simHost) bool
	}{
		"remove":          {func(c *chronicle) move { return moves.Remove(c.layout, false) }, gone},
		"purge":           {func(c *chronicle) move { return moves.Remove(c.layout, true) }, gone},
		"stop":            {func(c *chronicle) move { return moves.Stop(c.layout, tree.WholeJob, instances(c)...) }, away},
		"stop the server": {func(c *chronicle) move { return moves.Stop(c.layout, "10.0.0.9", instancesOf(c, "10.0.0.9")...) }, away},
		"disable": {func(c *chronicle) move { return moves.SetServers(c.layout, false) }, func(c *chronicle, h *simHost) bool {
			n := c.node(c.layout.Server(h.ip))
			return n.Exists && !tree.IsEnabled(n.Data) && len(c.assignments()[h.Self.ID]) == 0
		}},
	}
	calls := 0
	for name, word := range words {
		for _, others := range []string{"none", "one", "one that died"} {
			for _, known := range []bool{false, true} { // its server, and that the job was there
				for at, ended := 1, false; !ended; at++ {
					c, hosts := group(t, map[string]int{"none": 1, "one": 1, "one that died": 2}[others], nil)
					if others == "one that died" {
						hosts[1].crash()
					}
					if known {
						c.hand(registry.Create(c.layout.Server("10.0.0.9"), []byte(tree.Enabled)))
					}
					if others == "none" {
						must(t, hosts[0].leave("left", nil))
					}
					h := c.addHost("Z", "10.0.0.9")
					h.connect()
					i := &interrupted{at: at}
					saying := func() {
						if err := c.operate(word.say(c)); err != nil && !errors.Is(err, tree.ErrRemoved) {
							t.Errorf("%s: %v", name, err)
						}
					}
					i.do = saying
					applied := co.Applied{}
					join := func(ctx context.Context, r registry.Center) error {
						i.Center = r
						return moves.Join(&h.Member, co.Joining{Definition: c.file, Applied: &applied, Detail: tree.HostDetail{State: tree.DetailReady}})(ctx, i)
					}
					err := h.perform(join)
					if err == nil {
						h.joined, h.why, h.former = true, "", tree.Digest(c.file.YAML())
					}
					if ended = i.calls < at; ended { // it is said when it has joined
						saying()
					}
					var out *co.StayOut
					if err != nil && !errors.As(err, &out) {
						t.Errorf("%s, others %s, known %v, before call %d: %v", name, others, known, at, err)
					}
					c.settle()
					if !word.held(c, h) {
						t.Errorf("%s, others %s, known %v, before call %d: it does not hold: %v", name, others, known, at, err)
					}
					calls++
				}
			}
		}
	}
	if calls < 60 {
		t.Errorf("%d calls were looked at", calls)
	}
}

// TestOperatorsSpeakWhileAHostJoins is the same the other way round: a host joins before each of the calls by which
// something is said of a job, alone or as one of a crowd, and what is said holds for it.
func TestOperatorsSpeakWhileAHostJoins(t *testing.T) {
	t.Parallel()
	words := map[string]struct {
		say  func(c *chronicle) move
		held func(c *chronicle, h *simHost) bool
	}{
		"remove":          {func(c *chronicle) move { return moves.Remove(c.layout, false) }, gone},
		"purge":           {func(c *chronicle) move { return moves.Remove(c.layout, true) }, gone},
		"stop":            {func(c *chronicle) move { return moves.Stop(c.layout, tree.WholeJob, instances(c)...) }, away},
		"stop the server": {func(c *chronicle) move { return moves.Stop(c.layout, "10.0.0.9", instancesOf(c, "10.0.0.9")...) }, away},
		"disable": {func(c *chronicle) move { return moves.SetServers(c.layout, false) }, func(c *chronicle, h *simHost) bool {
			n := c.node(c.layout.Server(h.ip))
			return n.Exists && !tree.IsEnabled(n.Data) && len(c.assignments()[h.Self.ID]) == 0
		}},
		"disable by the definition": {func(c *chronicle) move {
			d := c.file
			d.Disabled = true
			return moves.ApplyDefinition(c.layout, d, tree.Digest(c.file.YAML()), nil, nil)
		}, func(c *chronicle, h *simHost) bool {
			n := c.node(c.layout.Server(h.ip))
			return n.Exists && !tree.IsEnabled(n.Data)
		}},
		"disable by the definition of a host that comes": {func(c *chronicle) move {
			d := c.file
			d.Disabled = true
			y := c.addHost("Y", "10.0.0.8")
			y.connect()
			return moves.Join(&y.Member, co.Joining{Definition: d, Applied: new(co.Applied), Detail: tree.HostDetail{State: tree.DetailReady}})
		}, func(c *chronicle, h *simHost) bool {
			n := c.node(c.layout.Server(h.ip))
			return n.Exists && !tree.IsEnabled(n.Data)
		}},
		"enable": {func(c *chronicle) move { // after it was disabled
			must(t, c.operate(moves.SetServers(c.layout, false)))
			return moves.SetServers(c.layout, true)
		}, func(c *chronicle, h *simHost) bool { return tree.IsEnabled(c.node(c.layout.Server(h.ip)).Data) }},
		"disabled until now": {func(c *chronicle) move {
			must(t, c.operate(func(ctx context.Context, r registry.Center) error {
				until := said
				until.Until = c.now.UnixMilli()
				_, err := operate.SetServers(ctx, r, c.layout, until, false)
				return err
			}))
			return func(ctx context.Context, r registry.Center) error {
				var of string
				var ended tree.Word
				_, err := operate.EndDisabled(ctx, r, c.layout, c.now, &of, &ended)
				return err
			}
		}, func(c *chronicle, h *simHost) bool { return tree.IsEnabled(c.node(c.layout.Server(h.ip)).Data) }},
		"disable the server": {func(c *chronicle) move { return moves.SetServers(c.layout, false, "10.0.0.9") }, func(c *chronicle, h *simHost) bool {
			n := c.node(c.layout.Server(h.ip))
			return n.Exists && !tree.IsEnabled(n.Data)
		}},
	}
	for name, word := range words {
		for _, crowd := range []bool{false, true} {
			calls := 0
			for at, ended := 1, false; !ended; at++ {
				c, _ := group(t, 2, nil)
				h := c.addHost("Z", "10.0.0.9")
				h.connect()
				if crowd { // another host has its name among the members before it appears
					c.hand(registry.CreateEphemeral(c.layout.Detail(h.Self.ID), tree.HostDetail{State: tree.DetailReady}.Data()))
					c.hand(registry.Set(c.layout.Members(), tree.ParseMembers(c.node(c.layout.Members()).Data).With(h.Self.ID).Data(), registry.AnyVersion))
				}
				i := &interrupted{at: at, do: func() {
					err := second(h.join(c.file))
					var out *co.StayOut
					if err != nil && !errors.As(err, &out) {
						t.Errorf("%s, crowd %v, before call %d: join: %v", name, crowd, at, err)
					}
				}}
				say := word.say(c)
				must(t, c.operate(func(ctx context.Context, r registry.Center) error {
					i.Center = r
					return say(ctx, i)
				}))
				if ended = i.calls < at; ended {
					break
				}
				c.settle()
				if !word.held(c, h) {
					t.Errorf("%s, crowd %v, before call %d: it does not hold", name, crowd, at)
				}
				calls++
			}
			if calls < 2 {
				t.Errorf("%s: %d calls were looked at", name, calls)
			}
		}
	}
}

func instances(c *chronicle) []string { return c.children(c.layout.Instances()) }

func instancesOf(c *chronicle, ip string) (list []string) {
	for _, id := range instances(c) {
		if tree.ServerOf(id) == ip {
			list = append(list, id)
		}
	}
	return list
}

// gone and away are what holds once a job is removed, and a host stopped.
func gone(c *chronicle, _ *simHost) bool { return !c.node(c.layout.Config()).Exists }

func away(c *chronicle, h *simHost) bool { return len(instancesOf(c, h.ip)) == 0 }

// TestRestore: whatever state a removal has left, a restored job is there with its last
// definition, or its hosts make it.
func TestRestore(t *testing.T) {
	t.Parallel()
	for name, damage := range map[string]func(c *chronicle){
		"removed": func(c *chronicle) { must(t, c.operate(moves.Remove(c.layout, false))) },
		"purged":  func(c *chronicle) { must(t, c.operate(moves.Remove(c.layout, true))) },
		"by another program": func(c *chronicle) {
			must(t, c.operate(func(ctx context.Context, r registry.Center) error { return operate.Forget(ctx, r, c.layout) }))
		},
		"the definition cannot be read": func(c *chronicle) {
			must(t, c.operate(moves.Remove(c.layout, false)))
			c.hand(registry.Set(c.layout.Definition(), []byte("{["), registry.AnyVersion))
		},
	} {
		c, h := group(t, 2, nil)
		edited := c.file
		edited.Description = "the newest"
		must(t, h[0].perform(moves.ApplyDefinition(c.layout, edited, "", nil, nil)))
		h[0].former = tree.Digest(edited.YAML())
		damage(c)
		c.settle()
		if err := c.operate(moves.Restore(c.layout)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		// Its hosts are asked to start, too, before one of them has made it again.
		start := func(ctx context.Context, r registry.Center) error {
			return operate.Start(ctx, r, c.layout, said, h[1].Self.ID)
		}
		if err := c.operate(start); err != nil && !errors.Is(err, operate.ErrNotAway) {
			t.Errorf("%s: start of a job that is back: %v", name, err)
		}
		must(t, second(h[0].join(edited)))
		if name != "by another program" { // which has deleted what was known of older ones, too
			must(t, second(h[1].join(c.file)))
		} else {
			must(t, second(h[1].join(edited)))
		}
		c.settle()
		if got := c.assignments(); len(got) != 2 {
			t.Errorf("%s: assignments %v", name, got)
		}
		if err := c.operate(moves.Restore(c.layout)); !errors.Is(err, operate.ErrNotAway) {
			t.Errorf("%s: restored twice: %v", name, err)
		}
		must(t, h[0].look())
		if got := h[0].View.Config.Description; got != "the newest" {
			t.Errorf("%s: the configuration is of %q", name, got)
		}
	}
}

// TestStopNoted: an instance that another program has deleted is written down as stopped once,
// and not if an operator of ours has said so, or taken it back.
func TestStopNoted(t *testing.T) {
	t.Parallel()
	c, h := group(t, 1, nil)
	id := h[0].Self.ID
	word := func() tree.Word {
		w := tree.ParseWanted(c.node(c.layout.Wanted()).Data)
		return w.Stopped[tree.ProcessOf(id)]
	}
	must(t, h[0].perform(moves.NoteStop(&h[0].Member, time.UnixMilli(5))))
	if w := word(); !w.Off || w.By == said.By || w.Since != 5 {
		t.Errorf("noted %+v", w)
	}
	must(t, c.operate(moves.Start(c.layout, id)))
	must(t, h[0].perform(moves.NoteStop(&h[0].Member, c.now)))
	if w := word(); w.Off {
		t.Errorf("it may come back, and is noted as stopped again: %+v", w)
	}
	if err := c.operate(moves.Start(c.layout, id)); !errors.Is(err, operate.ErrNotAway) {
		t.Errorf("started twice: %v", err)
	}
	must(t, c.operate(moves.Stop(c.layout, tree.WholeJob)))
	must(t, h[0].perform(moves.NoteStop(&h[0].Member, c.now)))
	if w := tree.ParseWanted(c.node(c.layout.Wanted()).Data); len(w.Stopped) != 1 || w.Stopped[tree.WholeJob].By != said.By {
		t.Errorf("stopped: %+v", w.Stopped)
	}
}

// TestManyWords: words and their texts are bounded; the oldest go.
func TestManyWords(t *testing.T) {
	t.Parallel()
	long := make([]byte, 10_000)
	for n := range long {
		long[n] = "é"[n%2]
	}
	var w tree.Words
	for n := range 1100 {
		w = w.With(fmt.Sprintf("10.0.%d.%d", n/250, n%250), tree.Word{Off: true, Since: int64(n), By: string(long), Why: string(long)})
	}
	if len(w) != 1000 || slices.Contains([]bool{w["10.0.0.99"].Off, !w["10.0.0.100"].Off, !w["10.0.4.99"].Off}, true) {
		t.Errorf("%d words", len(w))
	}
	if size := len((tree.Wanted{Disabled: w}).Data()); size > 700_000 {
		t.Errorf("1000 words are %d bytes", size)
	}
	if w = w.With(tree.WholeJob, tree.Word{}); len(w) != 1 {
		t.Errorf("a word of the whole job leaves %d others", len(w)-1)
	}
}
