// The same JSON out. AssemblyScript, without its runtime.
@external("palyra:plugins/host@0.1.0", "input-len")
declare function inputLen(): i32;
@external("palyra:plugins/host@0.1.0", "input-read")
declare function inputRead(into: usize, capacity: i32): i32;
@external("palyra:plugins/host@0.1.0", "output")
declare function output(json: usize, count: i32): i32;

export function run(): i32 {
  const count = inputLen();
  const buffer = heap.alloc(count);
  return output(buffer, inputRead(buffer, count));
}
