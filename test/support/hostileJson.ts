/** Valid JSON values that break code which expects another type and converts, calls or traverses them. */
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

/** Yields copies of a JSON value, each with one part, at any level, replaced by another value. */
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
