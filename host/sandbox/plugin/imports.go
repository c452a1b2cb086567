package plugin

import (
	"context"
	"fmt"
	"strings"
	"time"
	"unsafe"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/imports/wasi_snapshot_preview1"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/host/sandbox/wasm"
)

// importFunc implements an import. The stack holds the parameters and takes
// the result. Slots of i32 have garbage in their upper half when the guest was
// compiled (not when it is interpreted), so they are read with api.DecodeI32
// or DecodeU32 only.
type importFunc func(in *instance, mem api.Memory, stack []uint64)

// implementations are the functions of abi.Imports, by name.
func implementations() map[string]importFunc {
	return map[string]importFunc{
		"ctx_str":       ctxStr,
		"ctx_int":       ctxInt,
		"log":           logLine,
		"log_enabled":   logEnabled,
		"set_error":     setError,
		"progress":      progress,
		"metric":        metric,
		"offset_get":    offsetGet,
		"offset_set":    offsetSet,
		"offset_commit": offsetCommit,
		"cancelled":     cancelled,
		"retry_at":      retryAt,
	}
}

// register gives a wazero runtime the requested import modules. abi.Imports defines them; nothing else is
// registered.
func register(ctx context.Context, rt wazero.Runtime, wanted map[string][]string) error {
	if _, ok := wanted[abi.Module]; ok {
		b := rt.NewHostModuleBuilder(abi.Module)
		impl := implementations()
		for _, f := range abi.Imports() {
			do := impl[f.Name]
			if do == nil {
				return fmt.Errorf("import %s.%s is not implemented", abi.Module, f.Name)
			}
			b.NewFunctionBuilder().WithGoModuleFunction(api.GoModuleFunc(func(ctx context.Context, mod api.Module, stack []uint64) {
				in := current(ctx)
				if in == nil {
					panic(&fault{text: f.Name + ": called outside an invocation"})
				}
				in.stopIfEnded()
				invoke(&f, do, in, mod.Memory(), stack)
			}), valueTypes(f.Type.Params), valueTypes(f.Type.Results)).Export(f.Name)
		}
		if _, err := b.Instantiate(ctx); err != nil {
			return err
		}
	}
	if err := registerCapabilities(ctx, rt, wanted); err != nil {
		return err
	}
	if _, ok := wanted[abi.ModuleWASI]; ok {
		if _, err := wasi_snapshot_preview1.Instantiate(ctx, rt); err != nil {
			return err
		}
	}
	if _, ok := wanted[wasm.ModuleEnv]; ok {
		if err := registerAssemblyScript(ctx, rt); err != nil {
			return err
		}
	}
	return nil
}

// invoke runs an import, if a guest may call it in the instance's phase.
func invoke(f *abi.Import, do importFunc, in *instance, mem api.Memory, stack []uint64) {
	if in.phase&f.During != 0 {
		do(in, mem, stack)
		return
	}
	answer(f, stack, int64(abi.ErrState))
}

// answer puts a result where the guest finds it.
func answer(f *abi.Import, stack []uint64, v int64) {
	switch f.Answer {
	case abi.NoAnswer:
	case abi.AnswerValue:
		stack[0] = api.EncodeI64(v)
	default:
		stack[0] = api.EncodeI32(int32(v))
	}
}

// registerMeter gives a wazero runtime the function that metered modules call.
func registerMeter(ctx context.Context, rt wazero.Runtime) error {
	_, err := rt.NewHostModuleBuilder(wasm.MeterModule).NewFunctionBuilder().
		WithGoModuleFunction(api.GoModuleFunc(func(ctx context.Context, _ api.Module, stack []uint64) {
			in := current(ctx)
			if in == nil {
				panic(&fault{text: "the guest runs outside an invocation"})
			}
			in.stopIfEnded()
			in.checkStack()
			stack[0] = wasm.Quantum
		}), nil, []api.ValueType{api.ValueTypeI32}).Export(wasm.MeterImport).Instantiate(ctx)
	return err
}

// valueTypes turns the contract's types into wazero's: both are the binary
// format's.
func valueTypes(list []abi.ValueType) []api.ValueType {
	types := make([]api.ValueType, len(list))
	for i, t := range list {
		types[i] = api.ValueType(t)
	}
	return types
}

func setCode(stack []uint64, c abi.Code) { stack[0] = api.EncodeI32(int32(c)) }

// region returns a view of the guest's memory, to be copied before the import returns. A region outside the
// memory stops the guest.
func region(mem api.Memory, name string, ptr, n uint64) []byte {
	p, l := api.DecodeU32(ptr), api.DecodeU32(n)
	if l == 0 {
		return nil
	}
	b, ok := mem.Read(p, l)
	if !ok {
		outside(mem, name, p, l)
	}
	return b
}

func outside(mem api.Memory, name string, p, l uint32) {
	panic(&fault{text: fmt.Sprintf("%s: pointer %d with length %d is outside the memory of %d bytes", name, p, l, mem.Size())})
}

// give answers a read: the length, and the value if it fits.
func give(mem api.Memory, name string, stack []uint64, buf, limit uint64, value string) {
	if uint64(len(value)) <= uint64(api.DecodeU32(limit)) && len(value) > 0 {
		if p := api.DecodeU32(buf); !mem.WriteString(p, value) {
			outside(mem, name, p, uint32(len(value)))
		}
	}
	stack[0] = api.EncodeI32(int32(len(value)))
}

// text returns b as a string without a copy, for the duration of a call. b must not change while the string is
// in use.
func text(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }

func ctxStr(in *instance, mem api.Memory, stack []uint64) {
	field := api.DecodeI32(stack[0])
	if in.phase == abi.PhaseInit && field != abi.CtxPluginConfig && field != abi.CtxHostInfo {
		setCode(stack, abi.ErrState)
		return
	}
	value, ok := in.contextText(field)
	if !ok {
		setCode(stack, abi.ErrNotFound)
		return
	}
	give(mem, "ctx_str", stack, stack[1], stack[2], value)
}

// contextText is a field of the context; ok is false if there is none.
func (in *instance) contextText(field int32) (value string, ok bool) {
	c := &in.inv.Context
	switch field {
	case abi.CtxJobName:
		return c.JobName, true
	case abi.CtxTaskID:
		return c.TaskID, true
	case abi.CtxItemParameter:
		return c.ShardingParameter, c.HasShardingParameter && in.phase != abi.PhaseListener
	case abi.CtxJobParameter:
		return c.JobParameter, true
	case abi.CtxPluginConfig:
		if c.PluginConfig == nil {
			return text(in.x.settings.PluginConfig), true
		}
		return text(c.PluginConfig), true
	case abi.CtxTraceparent:
		return c.Traceparent, true
	case abi.CtxHostInfo:
		return c.HostInfo, true
	case abi.CtxRunID:
		return c.RunID, true
	case abi.CtxSource:
		return string(c.Source), true
	}
	return "", false
}

func ctxInt(in *instance, _ api.Memory, stack []uint64) {
	c := &in.inv.Context
	instant := func(t time.Time) int64 {
		if t.IsZero() {
			return int64(abi.ErrNotFound)
		}
		return max(t.UnixMilli(), 0)
	}
	v := int64(abi.ErrNotFound)
	switch api.DecodeI32(stack[0]) {
	case abi.CtxTotalCount:
		v = max(int64(c.ShardingTotalCount), 0)
	case abi.CtxItem:
		if in.phase != abi.PhaseListener && c.ShardingItem >= 0 {
			v = int64(c.ShardingItem)
		}
	case abi.CtxFireTime:
		v = instant(c.FireTime)
	case abi.CtxPreviousFire:
		v = instant(c.PreviousFireTime)
	case abi.CtxNextFire:
		v = instant(c.NextFireTime)
	case abi.CtxAttempt:
		v = max(int64(c.Attempt), 1)
	case abi.CtxDeadline:
		if v = 0; !c.Deadline.IsZero() {
			v = max(c.Deadline.UnixMilli(), 1)
		}
	case abi.CtxFence:
		v = max(c.Fence, 0)
	case abi.CtxFetchDataCount:
		if v = max(int64(c.FetchDataCount), 0); v == 0 && in.x.typ == wasm.TypeDataflow {
			v = abi.DefaultFetchDataCount
		}
	}
	stack[0] = api.EncodeI64(v)
}

func logLine(in *instance, mem api.Memory, stack []uint64) {
	level := api.DecodeI32(stack[0])
	msg := region(mem, "log", stack[1], stack[2])
	kv := region(mem, "log", stack[3], stack[4])
	if !in.host.LogEnabled(int(level)) {
		return
	}
	in.lines.log(in.ctx, in.host, int(level), msg, kv)
}

// attributes splits a key/value list, however malformed.
func attributes(kv string) []string {
	if kv == "" {
		return nil
	}
	list := strings.Split(strings.TrimSuffix(kv, "\x00"), "\x00")
	if len(list)%2 != 0 {
		list = append(list, "")
	}
	return list
}

func logEnabled(in *instance, _ api.Memory, stack []uint64) {
	var v int32
	if in.host.LogEnabled(int(api.DecodeI32(stack[0]))) {
		v = 1
	}
	stack[0] = api.EncodeI32(v)
}

func setError(in *instance, mem api.Memory, stack []uint64) {
	in.message = clean(region(mem, "set_error", stack[0], stack[1]), abi.MaxError)
}

func retryAt(in *instance, _ api.Memory, stack []uint64) {
	at, flags := int64(stack[0]), api.DecodeI32(stack[1])
	if at <= 0 || at > time.Now().Add(abi.MaxRetryAt).UnixMilli() || flags&^abi.RetryPausesKey != 0 {
		setCode(stack, abi.ErrInvalid)
		return
	}
	in.retryAt, in.pauseKey = at, flags&abi.RetryPausesKey != 0
	setCode(stack, abi.OK)
}

func progress(in *instance, _ api.Memory, stack []uint64) {
	if in.mayAct() {
		in.host.Progress(max(int64(stack[0]), 0), max(int64(stack[1]), 0))
	}
}

func metric(in *instance, mem api.Memory, stack []uint64) {
	kind := int(api.DecodeI32(stack[0]))
	name := region(mem, "metric", stack[1], stack[2])
	if !abi.ValidMetric(kind, name) {
		setCode(stack, abi.ErrInvalid)
		return
	}
	known, code := in.x.metrics.Use(name)
	if code == abi.OK && !in.mayAct() {
		code = abi.ErrCancelled
	}
	if code == abi.OK {
		code = in.host.Metric(kind, known, int64(stack[3]))
	}
	setCode(stack, code)
}

func offsetGet(in *instance, mem api.Memory, stack []uint64) {
	if in.isStaged {
		give(mem, "offset_get", stack, stack[0], stack[1], text(in.staged))
	} else if in.has {
		give(mem, "offset_get", stack, stack[0], stack[1], text(in.committed))
	} else {
		setCode(stack, abi.ErrNotFound)
	}
}

func offsetSet(in *instance, mem api.Memory, stack []uint64) {
	if api.DecodeU32(stack[1]) > abi.MaxOffset {
		setCode(stack, abi.ErrTooLarge)
		return
	}
	b := region(mem, "offset_set", stack[0], stack[1])
	if !in.mayAct() {
		setCode(stack, abi.ErrCancelled)
		return
	}
	// A new slice each time: the host keeps what it is given.
	in.staged, in.isStaged = append(make([]byte, 0, len(b)), b...), true
	setCode(stack, abi.OK)
}

func offsetCommit(in *instance, _ api.Memory, stack []uint64) {
	code := abi.OK
	if !in.mayAct() {
		code = abi.ErrCancelled
	} else {
		code = in.save(in.host.CommitOffset)
	}
	setCode(stack, code)
}

// save passes the staged data to the host: the offset, or nil if only an Outside may have staged data.
func (in *instance) save(to func(context.Context, []byte) abi.Code) abi.Code {
	if !in.isStaged {
		if in.inv.Outside == nil {
			return abi.OK
		}
		return to(in.ctx, nil)
	}
	code := to(in.ctx, in.staged)
	if code == abi.OK { // the next read finds it among what is committed
		in.committed, in.has = in.staged, true
		in.staged, in.isStaged = nil, false
	}
	return code
}

func cancelled(in *instance, _ api.Memory, stack []uint64) {
	stack[0] = api.EncodeI32(int32(in.host.Cancelled()))
}
