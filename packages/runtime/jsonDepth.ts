/**
 * Whether JSON has more than this many levels of objects and arrays, one within the other. `JSON.stringify` and whatever else follows a
 * value by recursion end in a RangeError some thousand levels down.
 */
export function isDeeperThan(levels: number, value: unknown): boolean {
  let level = [value].filter(isContainer)
  for (let depth = 0; level.length > 0; depth++) {
    if (depth === levels) return true
    level = level.flatMap((one) => Object.values(one)).filter(isContainer)
  }
  return false
}

function isContainer(value: unknown): value is object {
  return typeof value === 'object' && value !== null
}
