package deadman

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/wasmjob/wasmjob/host/config/filelock"
	"github.com/wasmjob/wasmjob/internal/text/reason"
)

// Ending is how a process ended.
type Ending string

// The endings.
const (
	// Ended: the process ended by itself, with or without an error.
	Ended Ending = "ended"
	// Stuck: it ended itself, because a guest of a lost session could not be
	// stopped.
	Stuck Ending = "stuck"
	// DeadMan: its dead man's timer was due less than DueFor before the next
	// start, and nothing else is known of its end: the timer ended it, or it was
	// killed or crashed before.
	DeadMan Ending = "dead_man"
	// Killed: it ended before its timer was due, or had none: SIGKILL, for want
	// of memory for example, or a crash.
	Killed Ending = "killed"
	// MachineRestart: the machine was started again since.
	MachineRestart Ending = "machine_restart"
	// Unknown: none of these can be shown.
	Unknown Ending = "unknown"
)

// Endings returns all endings.
func Endings() []string {
	var list []string
	for _, e := range []Ending{Ended, Stuck, DeadMan, Killed, MachineRestart, Unknown} {
		list = append(list, string(e))
	}
	return list
}

// DueFor is how long before a start a timer may have been due and still count as
// a possible cause: supervisors start a host again within seconds. After a longer time
// something else may well have ended the process before.
const DueFor = 2 * time.Minute

// Last is how the process before this one ended.
type Last struct {
	Ending  Ending
	PID     int
	Host    string // its last instance; empty if it had none, or was of an earlier version
	Started time.Time
	// Due is how long ago the timer was due, for DeadMan.
	Due time.Duration
	// File is the record.
	File string
}

// Why returns the ending as a reason for people.
func (l Last) Why() reason.Reason {
	switch l.Ending {
	case Ended:
		return reason.New(reason.EndedWell)
	case Stuck:
		return reason.New(reason.GuestUnstoppable)
	case DeadMan:
		return reason.New(reason.DeadManDue, l.Due.Round(time.Second))
	case Killed:
		return reason.New(reason.DeadManNotDue)
	case MachineRestart:
		return reason.New(reason.MachineRestarted)
	}
	return reason.New(reason.EndUnknown)
}

// state is the content of the file, one line of JSON.
type state struct {
	PID     int       `json:"pid"`
	Host    string    `json:"host,omitempty"`
	Started time.Time `json:"started"`
	Boot    string    `json:"boot,omitempty"`
	// The deadlines are times of the boot clock and of the monotonic one; 0 is off.
	FenceDue time.Duration `json:"fenceDueNs"`
	BeatDue  time.Duration `json:"beatDueNs"`
	Ending   Ending        `json:"ending,omitempty"` // empty: it has said nothing of an end
}

// ending returns how the process that left the state ended, as judged at a start now, by both clocks.
func (s state) ending(boot string, onBoot, onMonotonic time.Duration) (Ending, time.Duration) {
	switch {
	case s.Ending != "":
		return s.Ending, 0
	case s.Boot == "" || boot == "":
		return Unknown, 0
	case s.Boot != boot:
		return MachineRestart, 0
	}
	due := time.Duration(-1)
	if s.FenceDue != 0 {
		due = max(due, onBoot-s.FenceDue)
	}
	if s.BeatDue != 0 {
		due = max(due, onMonotonic-s.BeatDue)
	}
	switch {
	case due < 0:
		return Killed, 0
	case due > DueFor:
		return Unknown, 0
	}
	return DeadMan, due
}

// size is the file's size: a write replaces the whole file and needs no more room on the disk.
const size = 512

// slots is how many hosts may keep their records in one directory.
const slots = 64

// Record is the file in which a process says how far it came: "last-host-N.json",
// locked for as long as the process lives. The kernel keeps what was written
// when the process is killed; what a machine loses that loses its power is seen by the
// other boot id. Its methods are safe for concurrent use.
type Record struct {
	file *os.File

	mu    sync.Mutex
	state state
}

// OpenRecord takes the first record in the directory that no living process has,
// and says what the last one has left there; nil if there was none. The
// error is errors.ErrUnsupported on systems without locks that end with their
// process.
func OpenRecord(dir string) (*Record, *Last, error) {
	for n := range slots {
		name := filepath.Join(dir, fmt.Sprintf("last-host-%d.json", n))
		f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600)
		if err != nil {
			return nil, nil, err
		}
		if free, err := filelock.Take(f); !free || err != nil {
			_ = f.Close()
			if err != nil {
				return nil, nil, fmt.Errorf("lock %s: %w", name, err)
			}
			continue
		}
		last, err := read(f)
		if err == nil {
			r := &Record{file: f, state: state{PID: os.Getpid(), Started: time.Now().Round(0), Boot: bootID()}}
			if err = r.write(); err == nil {
				return r, last, nil
			}
		}
		return nil, nil, errors.Join(err, f.Close())
	}
	return nil, nil, fmt.Errorf("%s: %d hosts keep records there", dir, slots)
}

// read judges the record of the last process. An unreadable record is unknown.
func read(f *os.File) (*Last, error) {
	text, err := io.ReadAll(io.LimitReader(f, size))
	if err != nil {
		return nil, err
	}
	if len(text) == 0 {
		return nil, nil
	}
	var s state
	if json.Unmarshal(bytes.TrimSpace(text), &s) != nil {
		return &Last{Ending: Unknown, File: f.Name()}, nil
	}
	l := &Last{PID: s.PID, Host: s.Host, Started: s.Started, File: f.Name()}
	l.Ending, l.Due = s.ending(bootID(), now(bootClock), now(monotonicClock))
	return l, nil
}

// write needs the lock, or a Record that is not shared yet.
func (r *Record) write() error {
	text, err := json.Marshal(r.state)
	if err != nil {
		return err
	}
	line := bytes.Repeat([]byte{' '}, size)
	copy(line, text)
	line[size-1] = '\n'
	_, err = r.file.WriteAt(line, 0)
	return err
}

// Note records the process's present instance and the deadlines of the guard's timers, if any. It may block as
// long as the disk does.
func (r *Record) Note(host string, g *Guard) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if g == nil && host == r.state.Host {
		return nil
	}
	if r.state.Host = host; g != nil {
		r.state.FenceDue, r.state.BeatDue = time.Duration(g.fenceDue.Load()), time.Duration(g.beatDue.Load())
	}
	return r.write()
}

// Close records how this process ends, and releases the file. Only the first call has an effect.
func (r *Record) Close(how Ending) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.state.Ending != "" {
		return nil
	}
	r.state.Ending = how
	return errors.Join(r.write(), r.file.Close())
}
