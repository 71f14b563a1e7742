// The same JSON out, read and written again; an object with `fail` is an err.
export function run(input) {
  const value = JSON.parse(input);
  if (value && value.fail) throw value.fail;
  return JSON.stringify(value);
}
