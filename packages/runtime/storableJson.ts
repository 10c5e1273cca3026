/**
 * Explains why untrusted JSON can't be stored as `jsonb` and written again; returns null if it can.
 *
 * `JSON.stringify`, and any other recursive code, throws a RangeError for values that are some thousand levels deep. Postgres
 * can't store U+0000 or half of a surrogate pair. It writes numbers without an exponent, so 1e308 would take 309 digits.
 */
export function findUnstorable(value: unknown, maxLevels: number): string | null {
  let level: unknown[] = [value]
  for (let depth = 0; level.length > 0; depth++) {
    for (const one of level) {
      if (typeof one === 'string' && !isStorableText(one))
        return 'U+0000 and incomplete characters can’t be stored'
      if (typeof one === 'number' && /e/.test(`${one}`)) return 'numbers with an exponent can’t be stored'
    }
    const containers = level.filter((one): one is object => typeof one === 'object' && one !== null)
    if (containers.length > 0 && depth === maxLevels) return `at most ${maxLevels} levels`
    // Objects' keys are texts from outside, so check them as well. The keys of an array are only digits.
    level = containers.flatMap((one) => [
      ...Object.values(one),
      ...(Array.isArray(one) ? [] : Object.keys(one)),
    ])
  }
  return null
}

/** Whether a text column can store a text. */
export function isStorableText(text: string): boolean {
  return text.isWellFormed() && !text.includes('\0')
}
