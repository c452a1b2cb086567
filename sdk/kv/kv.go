// Package kv keeps small values for an item, beside its offset: from one fire to the
// next, on whichever host it runs.
//
// What is set, deleted or incremented is staged, and becomes durable with the offset:
// if the handler ends well (of a dataflow job: the batch), or by sdk.CommitOffset. After
// an error, a trap or a crash nothing of it has happened. The invocation itself reads
// what it has staged.
//
// An item has abi.MaxKeys keys of at most abi.MaxKey bytes, and all keys and values
// together have at most abi.MaxValue bytes. The operator grants it to a job with "kv".
// A listener has no item, and no values: ErrState. The functions may be called by
// several goroutines. Their errors wrap an sdk.Errno.
package kv

import (
	"errors"
	"fmt"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/sdk"
	"github.com/wasmjob/wasmjob/sdk/internal/border"
	"github.com/wasmjob/wasmjob/sdk/internal/handle"
)

// Get returns a value; ok is false if the item has none with the key. The errors are
// ErrInvalid (a key that is empty, too long or not UTF-8), ErrDenied and ErrState.
func Get(key string) (value []byte, ok bool, err error) {
	value, code := border.Whole(256, func(buf []byte) int32 { return border.KVGet(key, buf) })
	if sdk.Errno(code) == sdk.ErrNotFound {
		return nil, false, nil
	}
	return value, code == 0, check("get", key, int64(code))
}

// Set stages a value. Besides those of [Get] the errors are ErrTooLarge (keys and values
// over abi.MaxValue together), ErrQuota (more than abi.MaxKeys keys) and ErrCancelled
// (the item may no longer be this host's).
func Set(key string, value []byte) error {
	return check("set", key, int64(border.KVSet(key, value)))
}

// Delete stages that a key is gone. One that is not there is no error. The errors are
// those of [Get], and ErrCancelled.
func Delete(key string) error {
	err := check("delete", key, int64(border.KVDelete(key)))
	if errors.Is(err, sdk.ErrNotFound) {
		return nil
	}
	return err
}

// List returns the keys that begin with the prefix, in the order of their bytes. The
// errors are those of [Get].
func List(prefix string) ([]string, error) {
	list, code := border.Whole(1024, func(buf []byte) int32 { return border.KVList(prefix, buf) })
	if code < 0 {
		return nil, check("list", prefix, int64(code))
	}
	keys, err := abi.ParseList(list)
	if err != nil {
		return nil, fmt.Errorf("kv: list %q: %w", prefix, err)
	}
	return keys, nil
}

// Increment stages the sum of a counter and by, which may be negative, and returns it.
// A key that is not there counts as 0. The value is in decimal digits, so that [Get]
// and [Set] read and write it too. Besides those of [Set], ErrInvalid means that the
// value is no counter, or that the sum would be negative or over 2^63-1.
func Increment(key string, by int64) (int64, error) {
	sum := border.KVIncrement(key, by)
	if sum < 0 {
		return 0, check("increment", key, sum)
	}
	return sum, nil
}

func check(deed, key string, code int64) error {
	if code >= 0 {
		return nil
	}
	return fmt.Errorf("%s %.256q: %w", deed, key, handle.Fail(0, int32(code)))
}
