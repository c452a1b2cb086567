package admin

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/coordination"
	"github.com/wasmjob/wasmjob/coordination/admin/changelog"
	"github.com/wasmjob/wasmjob/coordination/admin/operate"
	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/coordination/tree"
	"github.com/wasmjob/wasmjob/host/event"
	"github.com/wasmjob/wasmjob/host/event/operation"
	"github.com/wasmjob/wasmjob/host/sandbox/capability/kv"
)

// Bytes are an offset or a value. In JSON they are a string, or if they are not UTF-8
// an object: {"base64": "…"}.
type Bytes string

// base64Bytes is the object.
type base64Bytes struct {
	Base64 []byte `json:"base64"`
}

// MarshalJSON implements [json.Marshaler].
func (b Bytes) MarshalJSON() ([]byte, error) {
	if utf8.ValidString(string(b)) {
		return json.Marshal(string(b))
	}
	return json.Marshal(base64Bytes{[]byte(b)})
}

// UnmarshalJSON implements [json.Unmarshaler].
func (b *Bytes) UnmarshalJSON(data []byte) error {
	if bytes.HasPrefix(data, []byte("{")) {
		var o base64Bytes
		err := json.Unmarshal(data, &o)
		*b = Bytes(o.Base64)
		return err
	}
	return json.Unmarshal(data, (*string)(b))
}

// Kept is what an item keeps from run to run: its offset and its key/value state.
type Kept struct {
	Job  string `json:"job"`
	Item int    `json:"item"`
	// Offset is nil if the item has none.
	Offset *Bytes `json:"offset,omitempty"`
	// Keys are those of the state, ascending. Values has their values, if one item was asked for.
	Keys   []string         `json:"keys"`
	Values map[string]Bytes `json:"values,omitempty"`
	// Size is the size of offset and state in the registry, in bytes; Written is when they were last written.
	Size    int       `json:"size"`
	Written time.Time `json:"written,omitzero"`
	// RunsOn is the instance that runs the item. Fence is the token of the newest run,
	// missing if that is not known.
	RunsOn string `json:"runsOn,omitempty"`
	Fence  int64  `json:"fence,omitempty"`
	// Damaged says why offset and state cannot be read.
	Damaged string `json:"damaged,omitempty"`
}

func newKept(job string, k operate.Kept, values bool) Kept {
	out := Kept{Job: job, Item: k.Item, Keys: []string{}, Size: len(k.Data), Written: k.Written, RunsOn: k.RunsOn, Fence: k.Fence}
	state, err := kv.Decode(k.Data, k.Has)
	if err != nil {
		out.Damaged = err.Error()
		return out
	}
	if state.HasOffset {
		offset := Bytes(state.Offset)
		out.Offset = &offset
	}
	out.Keys = append(out.Keys, state.List("")...)
	if values {
		out.Values = make(map[string]Bytes, len(out.Keys))
		for key, value := range state.Pairs() {
			out.Values[key] = Bytes(value)
		}
	}
	return out
}

// Kept is what the items of a job keep: one, or with -1 all, by number.
func (r *Registry) Kept(ctx context.Context, job string, item int) ([]Kept, error) {
	all, err := query(ctx, r, job, func(ctx context.Context, c registry.Center, l tree.Layout) ([]operate.Kept, error) {
		return operate.ReadKept(ctx, c, l, item)
	})
	if err != nil {
		return nil, err
	}
	if item >= 0 && len(all) == 0 {
		return nil, r.hasItem(ctx, job, item)
	}
	out := []Kept{}
	for _, k := range all {
		out = append(out, newKept(job, k, len(all) == 1))
	}
	return out, nil
}

// KeptChange is a change of what an item keeps. The zero value changes nothing.
type KeptChange struct {
	// Offset is the new offset, nil for the present one. ResetOffset removes it: the next run has none, like
	// the first one.
	Offset      *Bytes `json:"offset,omitempty"`
	ResetOffset bool   `json:"resetOffset,omitempty"`
	// Delete are keys to delete, with ResetState all; Set are keys to set afterwards.
	Delete     []string         `json:"delete,omitempty"`
	ResetState bool             `json:"resetState,omitempty"`
	Set        map[string]Bytes `json:"set,omitempty"`
}

// String says what is to be changed, without values.
func (c KeptChange) String() string {
	var parts []string
	if c.ResetOffset {
		parts = append(parts, "reset the offset")
	} else if c.Offset != nil {
		parts = append(parts, fmt.Sprintf("set the offset, %d bytes", len(*c.Offset)))
	}
	if c.ResetState {
		parts = append(parts, "deleted all keys")
	}
	for _, key := range c.Delete {
		parts = append(parts, fmt.Sprintf("deleted key %q", key))
	}
	for _, key := range sortedKeys(c.Set) {
		parts = append(parts, fmt.Sprintf("set key %q, %d bytes", key, len(c.Set[key])))
	}
	return strings.Join(parts, ", ")
}

// check refuses what is out of bounds.
func (c KeptChange) check() error {
	if c.Offset != nil && len(*c.Offset) > abi.MaxOffset {
		return &BadRequestError{"body.offset", fmt.Sprintf("the offset has %d bytes, expected at most %d", len(*c.Offset), abi.MaxOffset)}
	}
	for _, key := range sortedKeys(c.Set) {
		if err := kv.CheckKey(key); err != nil {
			return &BadRequestError{"body.set", err.Error()}
		}
	}
	return nil
}

// apply returns the new value for the registry.
func (c KeptChange) apply(job string, item int, data []byte, has bool) ([]byte, error) {
	state, err := kv.Decode(data, has)
	if err != nil {
		replaced := c.ResetState && (c.ResetOffset || c.Offset != nil)
		if !replaced {
			return nil, fmt.Errorf("item %d: %w; reset the offset and the state", item, err)
		}
		state = &kv.State{}
	}
	for _, key := range c.Delete {
		if keys := state.List(""); !slices.Contains(keys, key) {
			return nil, noKey(job, item, key, keys)
		}
		state.Delete(key)
	}
	if c.ResetState {
		for _, key := range state.List("") {
			state.Delete(key)
		}
	}
	for _, key := range sortedKeys(c.Set) {
		if err := state.Set(key, string(c.Set[key])); err != nil {
			return nil, &BadRequestError{"body.set", fmt.Sprintf("key %q: %v", key, err)}
		}
	}
	offset, hasOffset := state.Offset, state.HasOffset
	switch {
	case c.Offset != nil:
		offset, hasOffset = []byte(*c.Offset), true
	case c.ResetOffset:
		offset, hasOffset = nil, false
	}
	return state.Encode(offset, hasOffset), nil
}

// noKey is the error about a key that an item does not have.
func noKey(job string, item int, key string, keys []string) error {
	return &noTargetError{fmt.Sprintf("item %d of job %q has no key %q", item, job, key), keys}
}

// Value returns the value of a key of the item; an error without that key.
func (k *Kept) Value(key string) (Bytes, error) {
	value, ok := k.Values[key]
	if !ok {
		return "", noKey(k.Job, k.Item, key, k.Keys)
	}
	return value, nil
}

// ChangeKept changes what an item keeps; item -1 is the only one of its job. It is
// refused while the item runs: operate.ErrItemRuns.
func (r *Registry) ChangeKept(ctx context.Context, job string, item int, change KeptChange) (*Kept, error) {
	if err := change.check(); err != nil {
		return nil, err
	}
	s, err := r.Shards(ctx, job)
	if err != nil {
		return nil, err
	}
	numbers := s.numbers()
	if item < 0 && len(numbers) > 1 {
		return nil, &BadRequestError{"query.item", fmt.Sprintf("job %q has items %s: say which one is meant", job, numbers)}
	}
	if item < 0 && len(numbers) == 1 {
		item = numbers[0]
	}
	if err := hasNumber(job, item, numbers); err != nil {
		return nil, err
	}
	now, err := query(ctx, r, job, coordination.RegistryTime)
	if err != nil {
		return nil, err
	}
	record := changelog.Record{What: operation.ChangeKept.String(), Item: &item, After: event.Cut(change.String(), event.MaxReason)}
	k, err := changed(ctx, r, job, record, func(ctx context.Context, c registry.Center, l tree.Layout) (operate.Kept, error) {
		return operate.ChangeKept(ctx, c, l, item, now, func(data []byte, has bool) ([]byte, error) {
			return change.apply(job, item, data, has)
		})
	})
	if err != nil {
		return nil, err
	}
	out := newKept(job, k, true)
	return &out, nil
}
