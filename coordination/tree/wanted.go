package tree

import (
	"cmp"
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Wanted is what operators want of a job: node wanted. A host obeys it even if it joins later, and it outlives
// the job. An empty or missing node means that the job runs.
type Wanted struct {
	// Removed is set while the job is removed. A host does not recreate the job from a definition that the job
	// had before.
	Removed *Word `json:"removed,omitempty"`
	// Purged is set if its records were removed too.
	Purged bool `json:"purged,omitempty"`
	// Stopped says which hosts must stay out of the job, Disabled on which servers it must not begin. A
	// server's own node says what is in force there; Disabled decides for servers without one.
	Stopped  Words `json:"stopped,omitempty"`
	Disabled Words `json:"disabled,omitempty"`
	// Definition is the digest of the definition in force when the job was removed, Superseded are those before
	// it. Both are dropped when the job is recreated.
	Definition string     `json:"definition,omitempty"`
	Superseded Superseded `json:"superseded,omitempty"`
}

// Word is an operator's order, and when it was given.
type Word struct {
	// Off is set if it stops or disables; otherwise it is an exception from an order for the whole job. It is
	// not set for a removal.
	Off bool `json:"off,omitempty"`
	// Since is when it was given, Unix milliseconds by the giver's clock: only for people.
	Since int64 `json:"since,omitempty"`
	// Until is when a disabling ends by itself, Unix milliseconds by the registry's clock; 0: never. An instant
	// at that time runs.
	Until int64 `json:"until,omitempty"`
	// By is who gave it, Why the given reason; at most maxWordText bytes each.
	By  string `json:"by,omitempty"`
	Why string `json:"why,omitempty"`
}

// Mark is the data of an item's "disabled" mark, JSON: the order by which a program of ours disabled it.
func (w Word) Mark() []byte {
	w.Off = false // the mark says so
	b, err := json.Marshal(w.bounded())
	if err != nil { // strings and numbers always marshal
		return []byte(ItemMarked)
	}
	return b
}

// ParseMark reads the data of an item's mark. ours is false if another program made the mark; then there is no
// word.
func ParseMark(data []byte) (word Word, ours bool) {
	if string(data) == ItemMarked { // by a program of an earlier version
		return Word{Off: true}, true
	}
	if len(data) == 0 || json.Unmarshal(data, &word) != nil {
		return Word{Off: true}, false
	}
	word.Off = true
	return word.bounded(), true
}

// Over reports whether the word has ended by itself. now is Unix milliseconds, by the
// registry's clock.
func (w Word) Over(now int64) bool { return w.Off && w.Until != 0 && now >= w.Until }

// Same reports whether two words order the same: they differ at most in who gave them, when and why.
func (w Word) Same(v Word) bool { return w.Off == v.Off && w.Until == v.Until }

// Words are the orders for the whole job, under [WholeJob], for servers, under their addresses, and for hosts,
// under [ProcessOf] their ids.
type Words map[string]Word

// ByFile is the prefix of By of a Word from a definition file.
const ByFile = "file "

// WholeJob is the name of the whole job among Words.
const WholeJob = ""

const (
	// maxWords bounds Words: the oldest are dropped. A server's own node still says whether it is disabled.
	maxWords = 1000
	// maxWordText bounds the texts of a Word, in bytes.
	maxWordText = 256
)

// ParseWanted reads the node leniently: an unreadable one means that the job runs.
func ParseWanted(data []byte) Wanted {
	var w Wanted
	if json.Unmarshal(data, &w) != nil {
		return Wanted{}
	}
	return w
}

// Data is what the node holds, JSON; nil if the job is to run everywhere.
func (w Wanted) Data() []byte {
	b, err := json.Marshal(w)
	if err != nil || string(b) == "{}" { // strings and numbers always marshal
		return nil
	}
	return b
}

// bounded returns the word with shortened texts.
func (w Word) bounded() Word {
	w.By, w.Why = clip(w.By), clip(w.Why)
	return w
}

func clip(s string) string {
	if len(s) <= maxWordText {
		return s
	}
	const more = "…"
	cut := maxWordText - len(more)
	for !utf8.RuneStart(s[cut]) {
		cut--
	}
	return s[:cut] + more
}

// With returns the words and one more. A word for the whole job replaces all others.
func (w Words) With(of string, word Word) Words {
	if of == WholeJob {
		return Words{of: word.bounded()}
	}
	out := maps.Clone(w)
	if out == nil {
		out = make(Words)
	}
	out[of] = word.bounded()
	if len(out) > maxWords {
		names := slices.DeleteFunc(slices.Collect(maps.Keys(out)), func(name string) bool { return name == WholeJob || name == of })
		slices.SortFunc(names, func(a, b string) int { return cmp.Or(cmp.Compare(out[a].Since, out[b].Since), cmp.Compare(a, b)) })
		for _, name := range names[:len(out)-maxWords] {
			delete(out, name)
		}
	}
	return out
}

// Without returns a copy of the words without the word about of.
func (w Words) Without(of string) Words {
	out := maps.Clone(w)
	delete(out, of)
	return out
}

// Of returns the word that applies to something with several names: that of the first name that has one,
// otherwise that of the whole job. said is false without one.
func (w Words) Of(names ...string) (word Word, said bool) {
	for _, name := range append(names, WholeJob) {
		if word, said := w[name]; said {
			return word, true
		}
	}
	return Word{}, false
}

// EnabledAt returns the time, in Unix milliseconds of the registry's clock, up to which node "enabled" waives
// instants; 0 for none. set is when the node was last written, 0 if it does not exist.
func EnabledAt(data []byte, set int64) int64 {
	if at, err := strconv.ParseInt(string(data), 10, 64); err == nil && at < set {
		return at
	}
	return set
}

// EnabledData is what node enabled holds if the time is not that of its write.
func EnabledData(at int64) []byte { return strconv.AppendInt(nil, at, 10) }

// ProcessOf returns the name of an instance's process: its id without the parts that change with each session
// and join. The id of a Java host is returned unchanged.
func ProcessOf(id string) string {
	ip, token, ok := strings.Cut(id, delimiter)
	if !ok {
		return id
	}
	pid, _, _ := strings.Cut(token, "-")
	return ip + delimiter + pid
}

// StopOf returns the word that keeps an instance out of the job; stopped is false if there is none.
func (w Wanted) StopOf(id string) (word Word, stopped bool) {
	word, _ = w.Stopped.Of(ProcessOf(id), ServerOf(id))
	return word, word.Off
}

// Stop returns Wanted after an order that hosts stay out of the job: all of them, those of a server, or one; of
// is a name as in [Words]. It replaces earlier orders for these hosts.
func (w Wanted) Stop(of string, said Word) Wanted {
	said.Off = true
	rest := maps.Clone(w.Stopped)
	maps.DeleteFunc(rest, func(name string, _ Word) bool { return name != of && (of == WholeJob || ServerOf(name) == of) })
	if !w.Stopped[of].Off || len(rest) < len(w.Stopped) {
		w.Stopped = rest.With(of, said)
	}
	return w
}

// StartAgain returns Wanted after an order that a stopped instance may come back. If its server or the whole
// job is stopped, the exception is for its server: a host that is restarted there has another process name.
func (w Wanted) StartAgain(id string, said Word) Wanted {
	said.Off = false
	process, server := ProcessOf(id), ServerOf(id)
	w.Stopped = w.Stopped.Without(process)
	if w.stops(id) {
		w.Stopped = w.Stopped.With(server, said)
	}
	w.Stopped = w.Stopped.With(process, said) // it may not have left yet
	return w
}

// Came returns Wanted after an instance has come back: the order to come back is dropped, unless it is an
// exception, which a program of an earlier version has made.
func (w Wanted) Came(id string) Wanted {
	process := ProcessOf(id)
	if own, said := w.Stopped[process]; !said || own.Off {
		return w
	}
	if rest := w.Stopped.Without(process); !(Wanted{Stopped: rest}).stops(id) {
		w.Stopped = rest
	}
	return w
}

func (w Wanted) stops(id string) bool {
	_, stopped := w.StopOf(id)
	return stopped
}

// FirstOver returns the word that has ended by itself, the earliest if there are several, and its name; over is
// false if there is none. now is Unix milliseconds, by the registry's clock.
func (w Words) FirstOver(now int64) (name string, word Word, over bool) {
	for _, n := range slices.Sorted(maps.Keys(w)) {
		if w[n].Over(now) && (!over || w[n].Until < word.Until) {
			name, word, over = n, w[n], true
		}
	}
	return name, word, over
}

// DisabledOn reports whether the job is disabled on a server that has no node of its own;
// byDefault is what the job's configuration says.
func (w Wanted) DisabledOn(ip string, byDefault bool) bool {
	if word, said := w.Disabled.Of(ip); said {
		return word.Off
	}
	return byDefault
}

// Had reports whether a definition was in force before the job was removed.
func (w Wanted) Had(definition []byte) bool {
	return w.Definition == Digest(definition) || w.Superseded.Contains(definition)
}

// Gone returns Wanted after the job is removed. digest is that of its last definition, empty if there was none;
// superseded are those before it. A removed job is stopped and disabled nowhere.
func (w Wanted) Gone(said Word, digest string, superseded Superseded) Wanted {
	said = said.bounded()
	said.Off = false
	gone := Wanted{Removed: &said, Definition: w.Definition, Superseded: w.Superseded}
	if digest != "" {
		gone.Definition, gone.Superseded = digest, superseded
	}
	return gone
}

// Back returns Wanted after a removed job is brought back. The definitions that its hosts had stay until one
// recreates it, unless there says that the job exists again.
func (w Wanted) Back(there bool) Wanted {
	w.Removed, w.Purged = nil, false
	if there {
		w.Definition, w.Superseded = "", nil
	}
	return w
}

// Made returns Wanted after a host recreates the job from a definition, and the list of definitions that it
// supersedes: those before the last one, and the last one too unless the job was brought back before.
func (w Wanted) Made(definition []byte) (Wanted, Superseded) {
	list := w.Superseded
	if w.Removed != nil && w.Definition != "" {
		list = list.add(w.Definition)
	}
	list = list.without(Digest(definition))
	w.Removed, w.Purged, w.Definition, w.Superseded = nil, false, "", nil
	return w, list
}
