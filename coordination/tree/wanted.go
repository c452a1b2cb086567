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

// Wanted is what people want of a job: node wanted. Every host goes by it whenever it
// comes, and it outlives the job. An empty node, or none, wants the job to run.
type Wanted struct {
	// Removed is set while the job is removed. A host does not make the job again
	// with a definition that the job had before.
	Removed *Word `json:"removed,omitempty"`
	// Purged is set if its records went with it.
	Purged bool `json:"purged,omitempty"`
	// Stopped says which hosts are to stay out of the job, Disabled on which servers
	// nothing of it is to begin. The server's own node says what is in force there;
	// Disabled decides for servers that have none.
	Stopped  Words `json:"stopped,omitempty"`
	Disabled Words `json:"disabled,omitempty"`
	// Definition is the digest of the definition that was in force when the job was
	// removed, Superseded are those of the ones before it. Both go when the job is
	// made again.
	Definition string     `json:"definition,omitempty"`
	Superseded Superseded `json:"superseded,omitempty"`
}

// Word is what somebody has said, and when.
type Word struct {
	// Off is set if it stops or disables; else it takes that back, as an exception
	// from what holds for the whole job. Of a removal it is not set.
	Off bool `json:"off,omitempty"`
	// Since is when it was said, Unix milliseconds, by the clock of who said it: it is
	// for people.
	Since int64 `json:"since,omitempty"`
	// Until is when what disables ends by itself, Unix milliseconds, by the registry's
	// clock; 0: never. An instant at that time runs.
	Until int64 `json:"until,omitempty"`
	// By is who said it, Why the reason that was given; at most maxWordText bytes each.
	By  string `json:"by,omitempty"`
	Why string `json:"why,omitempty"`
}

// Mark is what the mark disabled of an item holds, JSON: the word by which a program of ours
// disabled it.
func (w Word) Mark() []byte {
	w.Off = false // the mark says so
	b, err := json.Marshal(w.bounded())
	if err != nil { // strings and numbers always marshal
		return []byte(ItemMarked)
	}
	return b
}

// ParseMark reads the data of an item's mark. ours is false if another program made the
// mark; then there is no word.
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

// Same reports whether two words ask for the same: they differ at most in who said it,
// when and why.
func (w Word) Same(v Word) bool { return w.Off == v.Off && w.Until == v.Until }

// Words are what was said of a whole job, under [WholeJob], of servers, under their
// addresses, and of hosts, under [ProcessOf] their ids.
type Words map[string]Word

// ByFile begins By of a Word that a definition file says.
const ByFile = "file "

// WholeJob is the name of the whole job among Words.
const WholeJob = ""

const (
	// maxWords bounds Words: of more the oldest go. A server's own node still says
	// whether it is disabled.
	maxWords = 1000
	// maxWordText bounds the texts of a Word, in bytes.
	maxWordText = 256
)

// ParseWanted reads the node leniently: what cannot be read wants the job to run.
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

// bounded is the word with texts of bounded length.
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

// With is the words and one more. One of the whole job replaces all others.
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

// Without is the words without one.
func (w Words) Without(of string) Words {
	out := maps.Clone(w)
	delete(out, of)
	return out
}

// Of is the word that counts for something of several names: that of the first one that
// has a word, else that of the whole job. said is false without one.
func (w Words) Of(names ...string) (word Word, said bool) {
	for _, name := range append(names, WholeJob) {
		if word, said := w[name]; said {
			return word, true
		}
	}
	return Word{}, false
}

// EnabledAt is up to when, in Unix milliseconds by the registry's clock, nothing is owed by
// node enabled; 0 for no limit. set is when the node was set last, 0 if it does not exist.
func EnabledAt(data []byte, set int64) int64 {
	if at, err := strconv.ParseInt(string(data), 10, 64); err == nil && at < set {
		return at
	}
	return set
}

// EnabledData is what node enabled holds if the time is not that of its write.
func EnabledData(at int64) []byte { return strconv.AppendInt(nil, at, 10) }

// ProcessOf is the process of an instance of ours: its id without what is new for each
// session and each join. Another id is its own process.
func ProcessOf(id string) string {
	ip, token, ok := strings.Cut(id, delimiter)
	if !ok {
		return id
	}
	pid, _, _ := strings.Cut(token, "-")
	return ip + delimiter + pid
}

// StopOf is the word by which an instance is to stay out of the job; stopped is false if
// there is none.
func (w Wanted) StopOf(id string) (word Word, stopped bool) {
	word, _ = w.Stopped.Of(ProcessOf(id), ServerOf(id))
	return word, word.Off
}

// Stop is what is wanted when hosts are to stay out of the job: all of them, those of a server, or one, which is
// of as in [Words]. What was said before of some of them is said no more.
func (w Wanted) Stop(of string, said Word) Wanted {
	said.Off = true
	rest := maps.Clone(w.Stopped)
	maps.DeleteFunc(rest, func(name string, _ Word) bool { return name != of && (of == WholeJob || ServerOf(name) == of) })
	if !w.Stopped[of].Off || len(rest) < len(w.Stopped) {
		w.Stopped = rest.With(of, said)
	}
	return w
}

// StartAgain is what is wanted when an instance that is stopped may come back: said is
// who said so. If its server or the whole job is stopped, the server is an exception from
// that: a host that is started again there has another process.
func (w Wanted) StartAgain(id string, said Word) Wanted {
	said.Off = false
	process, server := ProcessOf(id), ServerOf(id)
	w.Stopped = w.Stopped.Without(process)
	if w.stops(id) {
		w.Stopped = w.Stopped.With(server, said)
	}
	w.Stopped = w.Stopped.With(process, said) // it may still be on its way out
	return w
}

// Came is what is wanted when an instance has come back: that it was told to is said no
// more, unless it is an exception, which a program of an earlier version has made.
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

// FirstOver is the name and the word of what has ended by itself, the first to do so if there are several; over
// is false if there is none. now is Unix milliseconds, by the registry's clock.
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

// Gone is what is wanted of a job that somebody removes, whose last definition has
// the digest, empty if there was none, after those in superseded. A removed job is
// stopped and disabled nowhere.
func (w Wanted) Gone(said Word, digest string, superseded Superseded) Wanted {
	said = said.bounded()
	said.Off = false
	gone := Wanted{Removed: &said, Definition: w.Definition, Superseded: w.Superseded}
	if digest != "" {
		gone.Definition, gone.Superseded = digest, superseded
	}
	return gone
}

// Back is what is wanted of a removed job that somebody brings back. What its hosts know of
// it stays until one makes it again, unless it is there again by that: there is set then.
func (w Wanted) Back(there bool) Wanted {
	w.Removed, w.Purged = nil, false
	if there {
		w.Definition, w.Superseded = "", nil
	}
	return w
}

// Made is what is wanted when a host makes the job with a definition, and the list of
// definitions that it supersedes: those before the one with which it was removed, and that
// one as well unless the job has been brought back before.
func (w Wanted) Made(definition []byte) (Wanted, Superseded) {
	list := w.Superseded
	if w.Removed != nil && w.Definition != "" {
		list = list.add(w.Definition)
	}
	list = list.without(Digest(definition))
	w.Removed, w.Purged, w.Definition, w.Superseded = nil, false, "", nil
	return w, list
}
