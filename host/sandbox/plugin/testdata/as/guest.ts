// A job in AssemblyScript: fails an assertion if the job's parameter is "boom".
@external("job_v1", "ctx_str")
declare function ctx_str(field: u32, buf: usize, limit: u32): i32;
@external("job_v1", "set_error")
declare function set_error(msg: usize, len: u32): void;

export function job_abi_v1(): void {}

export function job_execute(): i32 {
  const n = ctx_str(4, 0, 0);
  if (n < 0) return 64;
  const buf = new Uint8Array(n);
  ctx_str(4, buf.dataStart, n);
  const parameter = String.UTF8.decode(buf.buffer);
  assert(parameter != "boom", "told to fail");
  if (parameter == "ok") return 0;
  const text = Uint8Array.wrap(String.UTF8.encode("unknown: " + parameter));
  set_error(text.dataStart, text.length);
  return 1;
}
