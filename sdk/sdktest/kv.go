package sdktest

import (
	"cmp"
	"maps"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/wasmjob/wasmjob/abi"
)

// state is the key/value state as the run has left it: what is committed, until the run
// changes something. It is called with the host's lock held.
func (h *Host) state() map[string][]byte {
	if h.stagedKV != nil {
		return h.stagedKV
	}
	return h.KV
}

// stage makes a change; it is committed with the offset.
func (h *Host) stage(change func(state map[string][]byte)) {
	if h.stagedKV == nil {
		h.stagedKV = maps.Clone(h.KV)
	}
	change(h.stagedKV)
}

// kv checks what all functions of the state do, and carries one out with the lock held.
func (i imports) kv(key string, writes bool, do func(h *Host) int64) int64 {
	i.h.mu.Lock()
	defer i.h.mu.Unlock()
	switch {
	case i.h.KV == nil:
		return int64(abi.ErrDenied)
	case writes && i.h.cancel == abi.CancelLost:
		return int64(abi.ErrCancelled)
	case key == "", len(key) > abi.MaxKey, !utf8.ValidString(key), strings.ContainsRune(key, 0):
		return int64(abi.ErrInvalid)
	}
	return do(i.h)
}

func (i imports) KVGet(key string, buf []byte) int32 {
	return int32(i.kv(key, false, func(h *Host) int64 {
		value, ok := h.state()[key]
		if !ok {
			return int64(abi.ErrNotFound)
		}
		return int64(give(buf, value))
	}))
}

func (i imports) KVSet(key string, value []byte) int32 {
	value = append([]byte{}, value...)
	return int32(i.kv(key, true, func(h *Host) int64 { return int64(h.set(key, value)) }))
}

func (h *Host) set(key string, value []byte) abi.Code {
	if len(value) > abi.MaxValue {
		return abi.ErrTooLarge
	}
	state := h.state()
	had, known := state[key]
	size := len(value) - len(had)
	if !known {
		size += len(key)
	}
	for k, v := range state {
		size += len(k) + len(v)
	}
	if size > abi.MaxValue || (!known && len(state) >= abi.MaxKeys) {
		return abi.ErrQuota
	}
	h.stage(func(state map[string][]byte) { state[key] = value })
	return abi.OK
}

func (i imports) KVDelete(key string) int32 {
	return int32(i.kv(key, true, func(h *Host) int64 {
		if _, ok := h.state()[key]; !ok {
			return int64(abi.ErrNotFound)
		}
		h.stage(func(state map[string][]byte) { delete(state, key) })
		return int64(abi.OK)
	}))
}

func (i imports) KVList(prefix string, buf []byte) int32 {
	// A prefix may be empty, unlike a key.
	return int32(i.kv(cmp.Or(prefix, "any"), false, func(h *Host) int64 {
		var keys []string
		for _, key := range sorted(h.state()) {
			if strings.HasPrefix(key, prefix) {
				keys = append(keys, key)
			}
		}
		return int64(give(buf, abi.AppendList(nil, keys...)))
	}))
}

func (i imports) KVIncrement(key string, by int64) int64 {
	return i.kv(key, true, func(h *Host) int64 {
		var sum int64
		if value, ok := h.state()[key]; ok {
			n, err := strconv.ParseInt(string(value), 10, 64)
			if err != nil || n < 0 {
				return int64(abi.ErrInvalid)
			}
			sum = n
		}
		if by > math.MaxInt64-sum || sum+by < 0 {
			return int64(abi.ErrInvalid)
		}
		sum += by
		if code := h.set(key, strconv.AppendInt(nil, sum, 10)); code != abi.OK {
			return int64(code)
		}
		return sum
	})
}
