package kv

import (
	"context"
	"errors"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/host/sandbox/capability"
)

// Functions are those of job_v1_kv for a run with the state.
func Functions(s *State) map[string]capability.Function {
	functions := map[string]capability.Function{}
	for name, do := range map[string]func(r *capability.Run, c *abi.Call, key string) (int64, error){
		"get":       s.get,
		"set":       s.set,
		"delete":    s.delete,
		"list":      s.list,
		"increment": s.increment,
	} {
		functions[abi.ModuleKV+"."+name] = func(_ context.Context, r *capability.Run, c *abi.Call) (int64, error) {
			if !r.Grant.KV {
				return 0, capability.Fail(abi.ErrDenied, "kv: state is not granted to job %q", r.Info.Job)
			}
			if n := len(c.Texts[0]); n > abi.MaxKey { // a guest's text is not copied before its length is known
				return 0, longKey(n)
			}
			key := string(c.Texts[0])
			if err := check(key, name == "list"); err != nil {
				return 0, err
			}
			return do(r, c, key)
		}
	}
	return functions
}

// CheckKey returns what is wrong with a key.
func CheckKey(key string) error { return check(key, false) }

func longKey(n int) error {
	return capability.Fail(abi.ErrInvalid, "kv: the key has %d bytes, expected at most %d", n, abi.MaxKey)
}

// check returns what is wrong with a key. The prefix of a list may be empty.
func check(key string, prefix bool) error {
	switch {
	case key == "" && !prefix:
		return capability.Fail(abi.ErrInvalid, "kv: the key is empty")
	case len(key) > abi.MaxKey:
		return longKey(len(key))
	case !utf8.ValidString(key) || strings.ContainsRune(key, 0):
		return capability.Fail(abi.ErrInvalid, "kv: the key %q is not UTF-8 without NUL", key)
	}
	return nil
}

func (s *State) get(_ *capability.Run, c *abi.Call, key string) (int64, error) {
	value, ok := s.Get(key)
	if !ok {
		return int64(abi.ErrNotFound), nil
	}
	return c.Give(value), nil
}

func (s *State) set(r *capability.Run, c *abi.Call, key string) (int64, error) {
	if err := r.MayAct(); err != nil {
		return 0, err
	}
	if len(c.Texts[1]) > abi.MaxValue {
		return 0, capability.Fail(abi.ErrTooLarge, "kv: %v", ErrTooLarge)
	}
	return int64(abi.OK), put(s, key, string(c.Texts[1]))
}

func put(s *State, key, value string) error {
	err := s.Set(key, value)
	if errors.Is(err, ErrTooMany) {
		return capability.Fail(abi.ErrQuota, "kv: %v", err)
	}
	if err != nil {
		return capability.Fail(abi.ErrTooLarge, "kv: %v", err)
	}
	return nil
}

func (s *State) delete(r *capability.Run, _ *abi.Call, key string) (int64, error) {
	if err := r.MayAct(); err != nil {
		return 0, err
	}
	if !s.Delete(key) {
		return int64(abi.ErrNotFound), nil
	}
	return int64(abi.OK), nil
}

func (s *State) list(_ *capability.Run, c *abi.Call, prefix string) (int64, error) {
	var b strings.Builder
	for _, key := range s.List(prefix) {
		b.WriteString(key)
		b.WriteByte(0)
	}
	return c.Give(b.String()), nil
}

func (s *State) increment(r *capability.Run, c *abi.Call, key string) (int64, error) {
	if err := r.MayAct(); err != nil {
		return 0, err
	}
	value, ok := s.Get(key)
	if !ok {
		value = "0"
	}
	n, err := strconv.ParseInt(value, 10, 64)
	if err != nil || n < 0 || strconv.FormatInt(n, 10) != value {
		return 0, capability.Fail(abi.ErrInvalid, "kv: the value of %q is no counter, which is decimal digits", key)
	}
	by := c.Numbers[0]
	if (by > 0 && n > math.MaxInt64-by) || n+by < 0 {
		return 0, capability.Fail(abi.ErrInvalid, "kv: %d and %d are together not in 0 to 2^63-1", n, by)
	}
	if err := put(s, key, strconv.FormatInt(n+by, 10)); err != nil {
		return 0, err
	}
	return n + by, nil
}
