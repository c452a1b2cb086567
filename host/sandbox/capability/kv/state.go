// Package kv is the key/value state of an item. It is stored in the registry together with the item's offset,
// in one value, so that both are committed together, by the same owner.
package kv

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/wasmjob/wasmjob/abi"
)

// State is an item's offset and its key/value pairs, as one invocation sees them. It is
// not safe for concurrent use.
type State struct {
	Offset    []byte
	HasOffset bool

	committed map[string]string
	staged    map[string]*string // nil: the key is deleted
}

// mark is the prefix of a value that has more than an offset. An offset with that prefix is stored in this
// form, too.
const mark = "\x00wasmjob.kv\x01"

// Decode reads an item's value in the registry: a bare offset, or the result of Encode. has is false if there
// is none. The error says that the value is damaged.
func Decode(data []byte, has bool) (*State, error) {
	s := &State{}
	if err := s.Decode(data, has); err != nil {
		return nil, err
	}
	return s, nil
}

// Decode sets the state as the function Decode does.
func (s *State) Decode(data []byte, has bool) error {
	*s = State{Offset: data, HasOffset: has}
	rest, ok := bytes.CutPrefix(data, []byte(mark))
	if !ok {
		return nil
	}
	// A flag and the offset, the number of pairs, and each key and value, all with
	// their length before them.
	damaged := errors.New("the item's state is damaged")
	next := func() ([]byte, bool) {
		n, used := binary.Uvarint(rest)
		if used <= 0 || n > uint64(len(rest)-used) {
			return nil, false
		}
		text := rest[used : used+int(n)]
		rest = rest[used+int(n):]
		return text, true
	}
	if len(rest) == 0 || rest[0] > 1 {
		return damaged
	}
	s.HasOffset, rest = rest[0] == 1, rest[1:]
	if s.Offset, ok = next(); !ok {
		return damaged
	}
	if !s.HasOffset {
		s.Offset = nil
	}
	count, used := binary.Uvarint(rest)
	if used <= 0 || count > abi.MaxKeys {
		return damaged
	}
	rest = rest[used:]
	s.committed = make(map[string]string, count)
	for range count {
		key, ok := next()
		value, ok2 := next()
		if !ok || !ok2 {
			return damaged
		}
		s.committed[string(key)] = string(value)
	}
	if len(rest) > 0 || uint64(len(s.committed)) != count {
		return damaged
	}
	return nil
}

// Encode returns the value to store for an offset and all pairs, including staged ones. Without pairs it is the
// offset itself.
func (s *State) Encode(offset []byte, has bool) []byte {
	pairs := s.Pairs()
	if len(pairs) == 0 && has && !bytes.HasPrefix(offset, []byte(mark)) {
		return offset
	}
	b := []byte(mark)
	flag := byte(0)
	if has {
		flag = 1
	}
	b = append(b, flag)
	put := func(text string) {
		b = binary.AppendUvarint(b, uint64(len(text)))
		b = append(b, text...)
	}
	put(string(offset))
	b = binary.AppendUvarint(b, uint64(len(pairs)))
	for _, key := range slices.Sorted(maps.Keys(pairs)) {
		put(key)
		put(pairs[key])
	}
	return b
}

// Pairs returns all pairs, including staged ones.
func (s *State) Pairs() map[string]string {
	if len(s.staged) == 0 {
		return s.committed
	}
	pairs := maps.Clone(s.committed)
	if pairs == nil {
		pairs = map[string]string{}
	}
	for key, value := range s.staged {
		if value == nil {
			delete(pairs, key)
		} else {
			pairs[key] = *value
		}
	}
	return pairs
}

// Changed reports whether something is staged.
func (s *State) Changed() bool { return len(s.staged) > 0 }

// Taken is called when the staged changes were committed, with the offset.
func (s *State) Taken(offset []byte, has bool) {
	s.Offset, s.HasOffset = offset, has
	s.committed, s.staged = s.Pairs(), nil
}

// Get returns a value.
func (s *State) Get(key string) (string, bool) {
	if value, ok := s.staged[key]; ok {
		if value == nil {
			return "", false
		}
		return *value, true
	}
	value, ok := s.committed[key]
	return value, ok
}

// ErrTooMany and ErrTooLarge are the errors of Set.
var (
	ErrTooMany  = fmt.Errorf("an item has at most %d keys", abi.MaxKeys)
	ErrTooLarge = fmt.Errorf("the keys and values of an item have at most %d bytes together", abi.MaxValue)
)

// Set stages a value. The key has been checked.
func (s *State) Set(key, value string) error {
	size, count := len(key)+len(value), 1
	for k, v := range s.Pairs() {
		if k != key {
			size += len(k) + len(v)
			count++
		}
	}
	switch {
	case size > abi.MaxValue:
		return ErrTooLarge
	case count > abi.MaxKeys:
		return ErrTooMany
	}
	s.stage(key, &value)
	return nil
}

// Delete stages the deletion of a key. It returns false if there is none.
func (s *State) Delete(key string) bool {
	if _, ok := s.Get(key); !ok {
		return false
	}
	if _, ok := s.committed[key]; ok {
		s.stage(key, nil)
	} else { // stage no deletion: a guest may create and delete any number of keys
		delete(s.staged, key)
	}
	return true
}

func (s *State) stage(key string, value *string) {
	if s.staged == nil {
		s.staged = map[string]*string{}
	}
	s.staged[key] = value
}

// List returns the keys that begin with a prefix, in their order.
func (s *State) List(prefix string) []string {
	var keys []string
	for key := range s.Pairs() {
		if strings.HasPrefix(key, prefix) {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	return keys
}
