/**
 * Says why a stranger's JSON can't be stored as `jsonb` and written again; null: it can.
 *
 * `JSON.stringify` and whatever else follows a value by recursion end in a RangeError some thousand levels down. Postgres has no U+0000 and
 * no half of a surrogate pair, and writes a number in full: 1e308 takes 309 digits.
 */
export function findUnstorable(value: unknown, maxLevels: number): string | null {
  let level: unknown[] = [value]
  for (let depth = 0; level.length > 0; depth++) {
    for (const one of level) {
      if (typeof one === 'string' && !isStorableText(one))
        return 'U+0000 and halves of characters can not be stored'
      if (typeof one === 'number' && /e/.test(`${one}`)) return 'numbers with an exponent can not be stored'
    }
    const containers = level.filter((one): one is object => typeof one === 'object' && one !== null)
    if (containers.length > 0 && depth === maxLevels) return `at most ${maxLevels} levels`
    // The names of an array's elements are digits.
    level = containers.flatMap((one) => [
      ...Object.values(one),
      ...(Array.isArray(one) ? [] : Object.keys(one)),
    ])
  }
  return null
}

/** Whether a column of text takes a text. */
export function isStorableText(text: string): boolean {
  return text.isWellFormed() && !text.includes('\0')
}
