package coordination_test

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	co "github.com/wasmjob/wasmjob/coordination"
	"github.com/wasmjob/wasmjob/coordination/admin/cleanup"
	"github.com/wasmjob/wasmjob/coordination/admin/operate"
	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/coordination/tree"
)

// FuzzRegistry edits the nodes of a job as another program or a hand might,
// between the steps of hosts that join, divide, fire, complete and die. The
// input is a script: three bytes a step, what, where and with which content.
// Nothing may panic, no item may run on two hosts, the hosts must come to rest;
// and when the configuration is good again and a host has come anew, every item
// belongs to somebody and runs, with no mark of anybody left.
func FuzzRegistry(f *testing.F) {
	f.Add([]byte{}, []byte("x"))
	f.Add([]byte{0, 5, 0, 10, 0, 0, 11, 0, 0}, []byte("{"))
	f.Add([]byte{10, 0, 0, 1, 12, 0, 11, 1, 0, 2, 20, 3}, []byte("0-999999"))
	f.Add([]byte{3, 33, 5, 10, 0, 0, 3, 40, 9, 12, 0, 0, 13, 0, 0}, []byte(`{"owner":"a/../b","instant":-1,"begun":1}`))
	f.Add([]byte{4, 3, 1, 5, 9, 2, 10, 0, 0, 6, 7, 3}, []byte("10.0.0.1@-@A\nx/y\n.."))
	for i := range byte(60) { // each node deleted, emptied, made anew and overwritten
		f.Add([]byte{10, 0, 0, i % 8, i, i, 11, 0, 0, (i + 3) % 8, i + 1, i + 2, 10, 0, 0}, []byte(contents[int(i)%len(contents)]))
	}
	f.Fuzz(func(t *testing.T, script, content []byte) {
		if len(script) > 60 || len(content) > 10_000 {
			return // longer scripts find nothing that shorter ones do not
		}
		playScript(t, script, content)
	})
}

var (
	registryScripts = flag.Int("registry.scripts", 100, "how many random scripts of edits TestRegistryAtRandom plays")
	registryScript  = flag.Int("registry.script", 0, "play only this one, and print what happened")
)

// TestRegistryAtRandom plays random scripts as FuzzRegistry does, always the
// same ones.
func TestRegistryAtRandom(t *testing.T) {
	t.Parallel()
	play := func(n int) {
		t.Run(strconv.Itoa(n), func(t *testing.T) {
			r := rand.New(rand.NewPCG(uint64(n), 11))
			script := make([]byte, 3*(2+r.IntN(19)))
			for i := range script {
				script[i] = byte(r.Uint32())
			}
			playScript(t, script, []byte(contents[r.IntN(len(contents))]))
		})
	}
	if *registryScript != 0 {
		play(*registryScript)
		return
	}
	for n := range *registryScripts {
		play(n + 1)
	}
}

func playScript(t *testing.T, script, content []byte) {
	c := newVandal(t, content)
	for len(script) >= 3 {
		c.step(script[0], int(script[1]), int(script[2]))
		script = script[3:]
	}
	c.recover()
}

// contents are what is written into nodes; the input has one more.
var contents = []string{
	"", "null", "{}", "NaN", "-1", "10.0.0.1@-@A", "10.0.0.1@-@A\n10.0.0.2@-@B\n../x", "0-2", "1,0,7", "DISABLED", "\x00\xff\xfe",
	`{"owner":"10.0.0.1@-@A","instant":1,"begun":1}`, `{"owner":"gone","begun":-1,"instant":-1}`, `{"begun":1}`,
	`{"runs":[{"instant":1,"items":"0-2","marked":true}]}`, `{"runs":[{"instant":-5,"items":"0,2,900"}],"java":"10.0.0.9@-@J"}`,
	`{"total":-4,"members":["x"],"instances":["10.0.0.1@-@A"],"strategy":"none","pending":"0-2"}`, `{"java":true,"total":3,"unknown":{}}`,
	`{"state":"DRAINING"}`, "jobName: demo\nshardingTotalCount: 2\nfailover: true\n", "jobName: demo\nshardingTotalCount: -1\n", "{[",
}

// vandal is a cluster of two hosts and somebody who edits its nodes.
type vandal struct {
	*chronicle
	content  string
	next     int             // hosts so far
	stranger registry.Center // another program's session
}

func newVandal(t *testing.T, content []byte) *vandal {
	v := &vandal{chronicle: newChronicle(t), content: string(content)}
	v.file.Failover, v.edited = true, true
	v.stranger = v.server.Connect(t)
	t.Cleanup(func() { _ = v.stranger.Close() })
	for range 2 {
		v.arrive()
	}
	v.rest()
	return v
}

func (v *vandal) arrive() {
	h := v.addHost(string(rune('A'+v.next)), fmt.Sprintf("10.0.0.%d", v.next+1))
	v.next++
	v.enter(h)
}

// step is one step of the script.
func (v *vandal) step(what byte, where, with int) {
	switch what % 16 {
	case 0, 1, 2, 3, 4, 5, 6, 7:
		v.edit(int(what%8), where, with)
	case 8, 9: // hosts see it at once, or only after what comes next
		v.rest()
	case 10:
		v.pass(10 * time.Second)
	case 11:
		v.complete(func(item int) bool { return item%2 == with%2 })
	case 12:
		if living := v.living(); len(living) > 0 {
			h := living[where%len(living)]
			v.say("%s dies", h.name)
			v.server.Expire(v.t, h.rc.Unwrap())
			h.rc.Expire()
			h.joined, h.why = false, "crashed"
		}
	case 13:
		if v.next < 6 {
			v.arrive()
		}
	case 14:
		v.now = v.now.Add(2 * time.Second)
		v.rest()
	default:
		v.complete(all)
	}
}

// edit changes one node of the tree as it is now, or makes one.
func (v *vandal) edit(how, where, with int) {
	root, sibling := v.layout.Root(), v.layout.Sibling()
	paths := v.below(root + "/leader")
	paths = append(paths, v.below(root+"/sharding")...)
	paths = append(paths, v.below(sibling)...)
	paths = append(paths, root+"/config", root+"/instances", root+"/servers", root+"/trigger", root+"/sharding/0/failover", root+"/sharding/0/misfire",
		root+"/sharding/1/running", root+"/sharding/9", root+"/sharding/x", root+"/sharding/-1", root+"/leader/failover/items/0", root+"/leader/failover/items/x",
		root+"/leader/sharding/necessary", root+"/leader/sharding/processing", root+"/instances/x", root+"/servers/x", root+"/trigger/x",
		sibling+"/runs/x", sibling+"/assignment/x", sibling+"/instances/x", sibling+"/sharding/x", sibling+"/x")
	path := paths[where%len(paths)]
	text := v.content
	if k := with % (len(contents) + 4); k < len(contents) {
		text = contents[k]
	}
	data := []byte(text)
	if how == 0 || how == 5 || how == 6 {
		data = v.node(path).Data
	}
	var ops []registry.Op
	if how >= 4 || how == 0 {
		for _, p := range slices.Backward(v.below(path)) {
			ops = append(ops, registry.Delete(p, registry.AnyVersion))
		}
	}
	switch how {
	case 0: // the subtree is gone
	case 1: // the node, if it has no children
		ops = append(ops, registry.Delete(path, registry.AnyVersion))
	case 2:
		ops = append(ops, registry.Ensure(path), registry.Set(path, nil, registry.AnyVersion))
	case 3, 7:
		ops = append(ops, registry.Ensure(path), registry.Set(path, data, registry.AnyVersion))
	case 4, 5: // made anew
		ops = append(ops, registry.Create(path, data))
	case 6: // somebody else's, for as long as that session lives
		ops = append(ops, registry.CreateEphemeral(path, data))
	}
	if len(ops) == 0 {
		return
	}
	_, err := v.stranger.Commit(v.ctx, ops...)
	v.say("edit %d of %s with %.60q: %v", how, strings.TrimPrefix(path, "/scenario-"), data, err)
}

// below lists the nodes of a subtree, parents first.
func (v *vandal) below(path string) []string {
	n := v.read(registry.Children(path))
	if !n.Exists {
		return nil
	}
	all := []string{path}
	for _, name := range n.Names {
		all = append(all, v.below(path+"/"+name)...)
	}
	return all
}

// rest lets all hosts look, mend and step until nobody has anything to do. What
// was refused is tried once more when time has passed, as hosts do.
func (v *vandal) rest() {
	for round := 1; ; round++ {
		idle := true
		for _, h := range v.living() {
			stepped, err := h.step()
			if round%20 == 0 && h.alive() { // it does not get on: see (*job).rereadShare
				v.mend(h)
				v.try(h, "ask", h.perform(moves.AskForSharding(&h.Member)))
			}
			if errors.Is(err, registry.ErrConflict) || h.alive() && h.View.MissingFromMembers() {
				v.mend(h)
			}
			if err == nil && !stepped && h.alive() && len(h.View.FailoverItems) > 0 && round < 5 {
				var out co.Recovered // as hosts do with what Java hosts have marked
				out, err = h.recover("", true, 100)
				stepped = out.Commits > 0
			}
			if err != nil {
				v.say("%s: %v", h.name, err)
				continue // it waits a second
			}
			idle = idle && !stepped
			v.nobodyTwice()
		}
		if idle {
			return
		}
		if round > 300 {
			v.t.Fatal("the hosts do not come to rest")
		}
	}
}

func (v *vandal) mend(h *simHost) {
	var mended []string
	err := h.perform(moves.Repair(&h.Member, co.Repairing{Detail: tree.HostDetail{State: tree.DetailReady}, Items: true}, &mended))
	v.say("%s: mends %d nodes: %v", h.name, len(mended), err)
}

// nobodyTwice is the invariant: no item runs on two hosts. A hand that deletes
// both nodes by which a host is known to live declares it dead; others take over
// what it runs, and its completions are refused.
func (v *vandal) nobodyTwice() {
	v.t.Helper()
	runs := make(map[int]string)
	for _, h := range v.living() {
		if !v.node(v.layout.Root()+"/instances/"+h.Self.ID).Exists && !v.node(v.layout.Sibling()+"/instances/"+h.Self.ID).Exists {
			continue
		}
		for _, i := range h.running() {
			if other, taken := runs[i]; taken {
				v.t.Fatalf("item %d runs on %s and on %s", i, other, h.name)
			}
			runs[i] = h.name
		}
	}
}

// recover is what follows the edits: the other program ends, an operator mends
// what is his, a host is started, and time passes. Then the job is whole.
func (v *vandal) recover() {
	t, root, sibling := v.t, v.layout.Root(), v.layout.Sibling()
	t.Helper()
	if err := v.stranger.Close(); err != nil {
		t.Error(err)
	}
	var ops []registry.Op
	if v.node(root + "/config").Exists {
		ops = append(ops, registry.Set(root+"/config", v.file.YAML(), registry.AnyVersion))
	}
	for _, p := range v.below(root + "/servers") {
		if p != root+"/servers" {
			ops = append(ops, registry.Set(p, []byte("ENABLED"), registry.AnyVersion))
		}
	}
	for _, p := range v.below(root + "/sharding") {
		if strings.HasSuffix(p, "/disabled") {
			ops = append(ops, registry.Delete(p, registry.AnyVersion))
		}
	}
	for i := range v.file.ShardingTotalCount {
		path := fmt.Sprintf("%s/sharding/%d", sibling, i)
		var r tree.Record
		if n := v.node(path); json.Unmarshal(n.Data, &r) == nil && time.UnixMilli(r.Instant).After(v.now) {
			ops = append(ops, registry.Delete(path, registry.AnyVersion)) // the status says so
		}
	}
	for _, op := range ops {
		if _, err := v.op.Commit(v.ctx, op); err != nil {
			v.say("operator: %v", err)
		}
	}
	if err := v.operate(moves.Restore(v.layout)); err != nil && !errors.Is(err, operate.ErrNotAway) && !errors.Is(err, tree.ErrRemoved) {
		v.say("operator: %v", err)
	}
	v.say("operator: has mended what is his")
	v.arrive()
	quiet := func() {
		for range 4 {
			v.rest()
			v.complete(all)
			v.now = v.now.Add(2 * time.Second)
		}
	}
	for range 3 {
		quiet()
		v.pass(time.Minute) // a host whose own list of runs says more than it runs finds out when it writes it
		quiet()
		for _, h := range v.living() {
			if h.look() == nil && h.View.Joined() {
				v.mend(h)
				var swept cleanup.Swept
				v.try(h, "sweep", h.perform(moves.Sweep(&h.Member, v.now, &swept)))
				v.say("%s: sweeps %d", h.name, len(swept.Nodes))
			}
		}
	}
	quiet()
	for range 2 { // a first fire may find marks that the next does not
		v.pass(time.Minute)
		v.rest()
		var running tree.Items
		for _, h := range v.living() {
			running = append(running, h.running()...)
		}
		slices.Sort(running)
		v.say("%s run", orNone(running))
		if want := (tree.Items{0, 1, 2}); v.now.Sub(start) > 0 && !slices.Equal(running, want) {
			t.Errorf("%s run, want %s", orNone(running), want)
		}
		quiet()
	}
	for i := range v.file.ShardingTotalCount {
		for _, mark := range []string{"running", "failover", "failovering"} {
			if n := v.node(fmt.Sprintf("%s/sharding/%d/%s", root, i, mark)); n.Exists {
				t.Errorf("item %d: mark %s is left, by %q", i, mark, n.Data)
			}
		}
	}
	for _, id := range strings.Fields(string(v.node(sibling + "/members").Data)) {
		if n := v.node(sibling + "/runs/" + id); strings.Contains(string(n.Data), "items") && !v.node(sibling+"/instances/"+id).Exists {
			t.Errorf("runs of %s are left: %q", id, n.Data)
		}
	}
}
