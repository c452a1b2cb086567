package plugin

import (
	"context"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"

	"github.com/wasmjob/wasmjob/abi"
)

// registerCapabilities gives a wazero runtime the requested modules of capabilities. All their functions go
// through the invocation's abi.Outside.
func registerCapabilities(ctx context.Context, rt wazero.Runtime, wanted map[string][]string) error {
	builders := map[string]wazero.HostModuleBuilder{}
	for _, f := range abi.CapabilityImports() {
		if _, ok := wanted[f.Module]; !ok {
			continue
		}
		b := builders[f.Module]
		if b == nil {
			b = rt.NewHostModuleBuilder(f.Module)
			builders[f.Module] = b
		}
		b.NewFunctionBuilder().WithGoModuleFunction(api.GoModuleFunc(func(ctx context.Context, mod api.Module, stack []uint64) {
			in := current(ctx)
			if in == nil {
				panic(&fault{text: f.Name + ": called outside an invocation"})
			}
			in.stopIfEnded()
			in.callOutside(&f, mod.Memory(), stack)
			in.stopIfEnded() // it may have waited
		}), valueTypes(f.Type.Params), valueTypes(f.Type.Results)).Export(f.Name)
	}
	for _, b := range builders {
		if _, err := b.Instantiate(ctx); err != nil {
			return err
		}
	}
	return nil
}

// callOutside carries out a call of a capability.
func (in *instance) callOutside(f *abi.Import, mem api.Memory, stack []uint64) {
	if in.phase&f.During == 0 {
		answer(f, stack, int64(abi.ErrState))
		return
	}
	if in.inv.Outside == nil {
		answer(f, stack, int64(abi.ErrDenied))
		return
	}
	c := &in.outside
	c.Function, c.Numbers, c.Texts, c.Buf = f, c.Numbers[:0], c.Texts[:0], nil
	rest := stack
	for _, p := range f.Params {
		switch p.Kind {
		case abi.KindInt32, abi.KindUint32:
			c.Numbers, rest = append(c.Numbers, int64(api.DecodeI32(rest[0]))), rest[1:]
		case abi.KindInt64:
			c.Numbers, rest = append(c.Numbers, int64(rest[0])), rest[1:]
		case abi.KindText, abi.KindBytes:
			c.Texts, rest = append(c.Texts, region(mem, f.Name, rest[0], rest[1])), rest[2:]
		case abi.KindBuffer:
			c.Buf, rest = region(mem, f.Name, rest[0], rest[1]), rest[2:]
		}
	}
	v := in.inv.Outside.Call(in.ctx, c)
	clear(c.Texts) // the guest's memory is not kept
	c.Buf = nil
	answer(f, stack, v)
}
