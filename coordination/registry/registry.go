// Package registry is the interface between wasmjob's protocol and its storage: a session with a tree of
// versioned nodes, its operations, errors and paths. A backend implements [Center] and passes
// coordination/registry/registrytest.
package registry

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Center is one session with a registry: a tree of nodes, each with data, a version and children, as ZooKeeper
// has it. It is safe for concurrent use. Paths are absolute, segments separated by "/", none of them empty.
//
// A session ends once and for all: when Lost is closed, every method returns [ErrSessionLost] (or [ErrClosed]
// after Close) and the session's ephemeral nodes are deleted now or soon. There is no reconnected state to
// repair; dial again.
type Center interface {
	// Commit applies all ops, in order, or none of them; each op sees what
	// those before it did. On failure the error is an *[OpError] that names
	// the op, a *[DeniedError] that names it, or one of the sentinel errors. A cancelled context leaves the
	// outcome unknown only if the error is [ErrUnknown]; in every other case
	// an error means that nothing was applied (save for [Ensure], see there).
	Commit(ctx context.Context, ops ...Op) ([]Result, error)
	// Read returns one node per query, in order, missing ones with Exists false. The nodes need not be of one
	// instant. If the registry does not permit to read some of them, the error is an *[UnreadableError] that
	// names these, and the others are still returned.
	Read(ctx context.Context, queries ...Query) ([]Node, error)
	// Watch sends a snapshot of the queries at once, and a new one whenever one of them may have changed. The
	// channel holds one value; a newer snapshot replaces one that was not taken, so a slow reader sees the
	// newest and blocks no other. A snapshot is never older than an earlier one, nor than this session's own
	// commits that returned before it was sent. The channel is closed when ctx is done or the session is over.
	// If the registry does not permit to read some of the nodes there is no watch, and the error is an
	// *[UnreadableError]. A node that becomes unreadable later is sent as last known, with Unread set, and is
	// read again from time to time.
	Watch(ctx context.Context, queries ...Query) (<-chan Snapshot, error)
	// Trust returns how far the session can be relied on now, and a channel that is closed when that changes.
	// The call computes the level from a clock that also runs while the process or the machine is stopped:
	// after a stop the first call shows the loss at once. Time makes the level worse; an answer of the registry
	// makes it TrustLive again, except that TrustLost is final: its channel is nil.
	Trust() (Trust, <-chan struct{})
	// Trusted reports whether the level is TrustLive: the session is known to be alive. While it is false no
	// run may start and Commit refuses.
	Trusted() bool
	// Lost is closed when the level becomes TrustLost: before any other session sees this session's ephemeral
	// nodes deleted.
	Lost() <-chan struct{}
	// Close ends the session; its ephemeral nodes go away before it returns.
	// Watches end. Further calls return nil.
	Close() error
}

// Trust is how far a session can be relied on. A higher level is worse. T is the session timeout; times count
// from when the last answered question was sent:
type Trust uint8

// The levels.
const (
	// TrustLive: the session is known to be alive.
	TrustLive Trust = iota
	// TrustSuspect, from T/3: no run may start, Commit refuses.
	TrustSuspect
	// TrustYield, from 5T/8: in addition, runs are asked to stop.
	TrustYield
	// TrustLost, from 2T/3 or when the session is known to be over: runs are stopped. It is final.
	TrustLost
)

// String returns the level for messages.
func (t Trust) String() string {
	names := [...]string{"live", "suspect", "yield", "lost"}
	if int(t) < len(names) {
		return names[t]
	}
	return "?"
}

// Errors of a Center. Backends translate their own errors to these.
var (
	// ErrConflict: an op's condition did not hold. It is wrapped by *OpError.
	ErrConflict = errors.New("registry: conflict")
	// ErrSessionLost: the session is over.
	ErrSessionLost = errors.New("registry: session lost")
	// ErrSuspect: the session is in doubt; nothing was written.
	ErrSuspect = errors.New("registry: session in doubt")
	// ErrClosed: Close was called.
	ErrClosed = errors.New("registry: closed")
	// ErrTooLarge: the request is over the size limit; it was not sent.
	ErrTooLarge = errors.New("registry: request too large")
	// ErrUnknown: the commit may or may not have taken effect.
	ErrUnknown = errors.New("registry: outcome unknown")
	// ErrUnavailable: the registry cannot be written now (disk full, no
	// quorum); nothing was written.
	ErrUnavailable = errors.New("registry: unavailable")
)

// OpKind is the kind of an Op.
type OpKind uint8

// The kinds.
const (
	OpCreate     OpKind = iota + 1 // conflict: exists, or the parent does not
	OpEphemeral                    // as OpCreate; deleted with the session; cannot have children
	OpSequential                   // ephemeral; ten digits are appended to the path, growing per parent
	OpSet                          // conflict: absent, or another version
	OpDelete                       // conflict: absent, another version, or has children
	OpCheck                        // conflict: absent, or another version
	OpAbsent                       // conflict: exists, or the parent does not exist
	OpEnsure                       // see Ensure
)

// AnyVersion matches every version.
const AnyVersion int32 = -1

// Op is one guarded write. Build it with the functions below.
type Op struct {
	Kind    OpKind
	Path    string
	Data    []byte
	Version int32
}

// Create makes a persistent node of version 0. Its parent must exist.
func Create(path string, data []byte) Op { return Op{Kind: OpCreate, Path: path, Data: data} }

// CreateEphemeral makes a node that is deleted when this session ends.
func CreateEphemeral(path string, data []byte) Op {
	return Op{Kind: OpEphemeral, Path: path, Data: data}
}

// CreateSequential makes an ephemeral node whose name is completed by the
// registry with a ten-digit number; see Result.Path.
func CreateSequential(prefix string, data []byte) Op {
	return Op{Kind: OpSequential, Path: prefix, Data: data}
}

// Set replaces a node's data and raises its version by one.
func Set(path string, data []byte, version int32) Op {
	return Op{Kind: OpSet, Path: path, Data: data, Version: version}
}

// Delete removes a node that has no children.
func Delete(path string, version int32) Op { return Op{Kind: OpDelete, Path: path, Version: version} }

// Check demands that a node has the version. A recreated node starts at version 0, so never check a node that
// may be recreated.
func Check(path string, version int32) Op { return Op{Kind: OpCheck, Path: path, Version: version} }

// Absent demands that a node does not exist while its parent does.
func Absent(path string) Op { return Op{Kind: OpAbsent, Path: path} }

// Ensure demands that a persistent node exists: if it does not, it is created with empty data, with its missing
// ancestors. These nodes may stay even if the rest of the commit fails.
func Ensure(path string) Op { return Op{Kind: OpEnsure, Path: path} }

// Result is the result of one op of a successful commit.
type Result struct {
	// Path is the full path; it differs from the op's for OpSequential.
	Path string
	// Version is the node's version after an OpSet.
	Version int32
	// Zxid is the transaction number after an OpSet; 0 for other kinds. It grows with every commit of the
	// registry, and never starts over.
	Zxid int64
	// Time is the registry's clock at the transaction of an OpSet, which becomes the node's Mtime; zero for
	// other kinds.
	Time time.Time
}

// Reason says which condition of an op failed.
type Reason string

// The reasons.
const (
	ReasonExists   Reason = "exists"
	ReasonAbsent   Reason = "does not exist"
	ReasonVersion  Reason = "has another version"
	ReasonChildren Reason = "has children"
	ReasonParent   Reason = "has no parent node"
)

// OpError says which op of a commit failed, and why. It is an [ErrConflict].
type OpError struct {
	Index  int
	Op     Op
	Reason Reason
}

func (e *OpError) Error() string {
	return fmt.Sprintf("registry: conflict: op %d (%s %s): node %s", e.Index, e.Op.Kind, e.Op.Path, e.Reason)
}

// Unwrap returns ErrConflict.
func (e *OpError) Unwrap() error { return ErrConflict }

// DeniedError names the op of a commit that the registry does not permit, because of access or quota. Nothing
// was written, and the op is denied until an administrator changes that. It is an [ErrUnavailable], not a
// conflict: a retry does not help.
type DeniedError struct {
	Index int
	Op    Op
	Err   error // names the op and says why; it wraps ErrUnavailable
}

func (e *DeniedError) Error() string { return e.Err.Error() }

// Unwrap returns Err.
func (e *DeniedError) Unwrap() error { return e.Err }

// UnreadableError says which nodes the registry does not permit to read, and why: each error names the node and
// wraps [ErrUnavailable]. The nodes exist, and stay unreadable until an administrator changes that.
type UnreadableError struct{ Denied map[Query]error }

// first is the error of the first of the nodes.
func (e *UnreadableError) first() error {
	var at Query
	for q := range e.Denied {
		if at.Path == "" || q.Path < at.Path {
			at = q
		}
	}
	return e.Denied[at]
}

func (e *UnreadableError) Error() string {
	if more := len(e.Denied) - 1; more > 0 {
		return fmt.Sprintf("%v (and of %d more nodes)", e.first(), more)
	}
	return fmt.Sprint(e.first())
}

// Unwrap returns the error of the first node.
func (e *UnreadableError) Unwrap() error { return e.first() }

// IsDenied reports whether the registry does not permit the request: a [DeniedError] or an [UnreadableError].
func IsDenied(err error) bool {
	var write *DeniedError
	var read *UnreadableError
	return errors.As(err, &write) || errors.As(err, &read)
}

// String returns the verb for messages and scenario scripts.
func (k OpKind) String() string {
	names := [...]string{"?", "create", "ephemeral", "sequential", "set", "delete", "check", "absent", "ensure"}
	if int(k) < len(names) {
		return names[k]
	}
	return names[0]
}

// Query asks for one node.
type Query struct {
	Path string
	// Children asks for the names of the children in place of the data.
	Children bool
}

// Data asks for a node's data and version.
func Data(path string) Query { return Query{Path: path} }

// Children asks for the names of a node's children.
func Children(path string) Query { return Query{Path: path, Children: true} }

// Node is the answer to a Query.
type Node struct {
	Query
	Exists bool
	// Data is set for a data query; nil and empty mean the same. It must not
	// be modified.
	Data []byte
	// Names are the children's names in ascending byte order, for a children
	// query. They must not be modified.
	Names []string
	// Version counts the sets of the node's data; a new node has 0.
	Version int32
	// Czxid and Mzxid are the transactions that made and last set the node.
	Czxid, Mzxid int64
	// Mtime is the registry's clock at the last set, in its own resolution.
	Mtime time.Time
	// Ephemeral is true for a node that is deleted with a session.
	Ephemeral bool
	// Unread is set in a snapshot of a watch while the registry does not permit to read the
	// node: the rest is as it was last known.
	Unread error
}

// Snapshot is an immutable set of nodes, by query.
type Snapshot map[Query]Node

// Data returns the node of a data query; Exists is false if it was not asked for.
func (s Snapshot) Data(path string) Node { return s[Data(path)] }

// Children returns the names below path, ascending; nil if it was not asked for.
func (s Snapshot) Children(path string) []string { return s[Children(path)].Names }
