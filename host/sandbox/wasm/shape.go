package wasm

import "github.com/wasmjob/wasmjob/abi"

// Limits of the shape of code. wazero v1.12.0 validates and compiles code with as much
// memory and time as the code's shape asks for, which can be thousands of times as much as
// the code is long: a call of two bytes may return 1,000 values. docs/security.md says
// what real programs need.
const (
	// maxHeight is how many values the operand stack of a function may hold.
	maxHeight = 10_000
	// maxNesting is how deep the blocks of a function may be nested.
	maxNesting = 50_000
	// freeMoves is how many values all calls, blocks and branches of a module may take and
	// leave, beside one for each of its bytes.
	freeMoves = 1 << 20
	// maxMerges is how often a block of a function may set a local variable, each variable
	// counted once for each block around it: the compiler keeps a value for each of them.
	maxMerges = 2_000_000
	// maxFrame is how much native stack a call of a function may need, in bytes.
	maxFrame = 2 << 20
)

// Upper bounds of the native stack that wazero v1.12.0 uses, in bytes. Each value that
// code makes may have a place of its own there, however short it lives. Constants have
// none: they are made where they are needed.
const (
	frameBase   = 96 // return address, registers that are saved
	valueBytes  = 8
	vectorBytes = 16
	// So many values that the code does not have are kept: the address of a load or store,
	// the memory's place and size after a call, what a payment reads.
	addressValues = 1
	callValues    = 2
	payValues     = 2
	// frameShift: 4 bytes of native stack cost one unit.
	frameShift = 2
)

// StackExceeds reports whether a native stack of so many bytes is beyond abi.MaxStack, as
// far as the engine's way of growing it lets that be said: it doubles a stack, and adds
// what the call at hand needs. A stack that does not exceed has at most 2*abi.MaxStack
// when the host is asked the next time: in between it grows by what a [Quantum] pays for,
// and by two calls.
func StackExceeds(bytes int64) bool { return 2*bytes+maxFrame > 2*abi.MaxStack }

// frame is a block that is open, or the function itself.
type frame struct {
	charge  int            // what its code is charged to
	sig     *abi.Signature // what it takes and leaves
	base    int            // height of the operand stack without what it takes
	unknown bool           // code that cannot be reached: there is any number of values
	loop    bool
	isIf    bool
	target  bool // a branch leads to its label
	opened  int  // the how manyth block of the function it is
	bytes   int  // of the local variables that are set in it
}

// label is the type of what a branch to the frame takes along.
func (f *frame) label() []abi.ValueType {
	if f.loop {
		return f.sig.Params
	}
	return f.sig.Results
}

// shape follows the operand stack of a function, as wazero's validator does, and sums up
// what the engine needs for it. Of code that is not valid it knows the part before that,
// which is all that wazero reads.
type shape struct {
	frames []frame
	height int
	locals []localVariable
	opened int
	merges int
	bytes  int // of values, on the native stack
	calls  int // bytes of parameters and results, of the call with most
	moves  int // of the module
	// maxMoves is the limit of moves.
	maxMoves int
}

type localVariable struct {
	bytes int
	set   int // the number of the last block that was open when it was set; 0: never
}

// begin is called before the first instruction of a function.
func (s *shape) begin(sig *abi.Signature) {
	s.frames = append(s.frames[:0], frame{sig: &abi.Signature{Results: sig.Results}, opened: 1})
	s.height, s.opened, s.merges, s.calls = 0, 1, 0, 0
	s.locals = s.locals[:0]
	s.bytes = frameBase
	for _, t := range sig.Params {
		s.local(t)
		s.bytes += bytesOf(t)
	}
}

// local adds a local variable.
func (s *shape) local(t abi.ValueType) {
	s.locals = append(s.locals, localVariable{bytes: bytesOf(t)})
}

func bytesOf(t abi.ValueType) int {
	if t == typeV128 {
		return vectorBytes
	}
	return valueBytes
}

// native is how much of the native stack a call of the function takes at most, in bytes.
func (s *shape) native() int { return s.bytes + s.calls }

func (s *shape) top() *frame { return &s.frames[len(s.frames)-1] }

func (s *shape) pop(n int) {
	least := s.top().base
	if s.top().unknown {
		least++
	}
	s.height = max(s.height-n, least)
}

func (s *shape) push(n int) { s.height += n }

// unreachable is called where the code that follows cannot be reached.
func (s *shape) unreachable() {
	f := s.top()
	f.unknown = true
	s.height = f.base + 1
}

// made takes note of values of a type that the code makes.
func (s *shape) made(list []abi.ValueType) {
	for _, t := range list {
		s.bytes += bytesOf(t)
	}
}

// take pops what a call or block takes, and leave pushes what it leaves.
func (s *shape) take(list []abi.ValueType)  { s.pop(len(list)); s.moves += len(list) }
func (s *shape) leave(list []abi.ValueType) { s.push(len(list)); s.moves += len(list) }

func (s *shape) call(sig *abi.Signature) {
	s.take(sig.Params)
	s.leave(sig.Results)
	s.made(sig.Results)
	s.bytes += callValues * valueBytes
	s.calls = max(s.calls, vectorBytes*(len(sig.Params)+len(sig.Results)))
}

func (s *shape) open(f frame) {
	s.take(f.sig.Params)
	s.leave(f.sig.Params)
	s.opened++
	f.opened, f.base = s.opened, s.height-len(f.sig.Params)
	s.frames = append(s.frames, f)
	s.made(f.sig.Params)
	s.made(f.sig.Results)
}

func (s *shape) otherwise() {
	f := s.top()
	s.moves += len(f.sig.Results)
	s.height, f.unknown = f.base, false
	s.leave(f.sig.Params)
}

func (s *shape) end() {
	f := s.top()
	if f.target || f.isIf {
		s.bytes += f.bytes
	}
	s.height = f.base
	s.moves += len(f.sig.Results)
	results := f.sig.Results
	s.frames = s.frames[:len(s.frames)-1]
	s.leave(results)
}

// branch returns the frame that a branch leads to, nil if there is none.
func (s *shape) branch(label uint32) *frame {
	if int64(label) >= int64(len(s.frames)) {
		return nil
	}
	f := &s.frames[len(s.frames)-1-int(label)]
	f.target = true
	return f
}

// set takes note that a local variable is set: each block around it may have another
// value of it where it ends.
func (s *shape) set(local uint32) {
	if int64(local) >= int64(len(s.locals)) {
		return
	}
	v := &s.locals[local]
	for i := len(s.frames) - 1; i > 0 && s.frames[i].opened > v.set; i-- {
		s.frames[i].bytes += v.bytes
		s.merges++
	}
	v.set = s.opened
}

// plain follows an instruction whose operands do not depend on types. bytes are those of
// the values that it makes.
func (s *shape) plain(known opcode, bytes int) {
	s.pop(int(known.pop))
	s.push(int(known.push))
	s.bytes += bytes
}

// exceeds reports whether something is beyond a limit.
func (s *shape) exceeds() bool {
	return s.height > maxHeight || len(s.frames) > maxNesting || s.moves > s.maxMoves || s.merges > maxMerges || s.native() > maxFrame
}

// refuse says what is beyond a limit.
func (s *shape) refuse(c *cursor) {
	switch {
	case s.height > maxHeight:
		c.fail("%d values on the operand stack, the limit is %d", s.height, maxHeight)
	case len(s.frames) > maxNesting:
		c.fail("blocks are nested more than %d deep", maxNesting)
	case s.moves > s.maxMoves:
		c.fail("calls, blocks and branches of the module pass more than %d values", s.maxMoves)
	case s.merges > maxMerges:
		c.fail("blocks of the function set local variables more than %d times, each counted once for each block", maxMerges)
	default:
		c.fail("a call of the function may take %d bytes of native stack, the limit is %d", s.native(), maxFrame)
	}
}
