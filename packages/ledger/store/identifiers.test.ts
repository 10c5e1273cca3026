import { expect, test, vi } from 'vitest'
import { isId, newId } from './identifiers.ts'

test('behavior: identifiers that are created later sort later, and identifiers of the same millisecond differ', () => {
  vi.useFakeTimers({ now: Date.UTC(2026, 0), toFake: ['Date'] })
  const early = Array.from({ length: 1_000 }, () => newId('pay'))
  expect(early.every((id) => isId('pay', id))).toBe(true)
  // The last 20 digits are random.
  expect(new Set(early.map((id) => id.slice(-20))).size).toBe(early.length)
  vi.setSystemTime(Date.now() + 1)
  const late = newId('pay')
  vi.useRealTimers()
  expect(early.every((id) => id < late)).toBe(true)
})
