/** Values that JSON can have anywhere, and that break code which trusts their type: by a conversion, a call or a recursion. */
export const hostileValues: readonly unknown[] = [
  null,
  true,
  -1,
  1e308,
  '',
  '\u0000',
  [],
  [[null]],
  {},
  { toString: 1, valueOf: 1 },
  { length: 1e9 },
  JSON.parse('{"__proto__": {"toString": 1}, "constructor": 1, "then": 1}'),
  JSON.parse(`${'['.repeat(8_000)}${']'.repeat(8_000)}`),
]

/** Copies of a JSON value, in each of which one part, of any level, is another value. */
export function* withHostileParts(value: unknown): Generator<unknown> {
  yield* hostileValues
  if (typeof value !== 'object' || value === null) return
  for (const [name, part] of Object.entries(value)) {
    for (const hostile of withHostileParts(part))
      yield Array.isArray(value)
        ? value.map((one, index) => (index === Number(name) ? hostile : one))
        : { ...value, [name]: hostile }
  }
}
