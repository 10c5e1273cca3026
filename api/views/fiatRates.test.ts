import { mkdtemp, rm, utimes, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import fc from 'fast-check'
import { expect, test } from 'vitest'
import { convert, openFiatRates, parseFiatRates } from './fiatRates.ts'

const header = 'date,currency,rate,source'
const rateOf = (rate: string) => {
  const found = parseFiatRates(`${header}\n2026-11-02,EUR,${rate},ECB`).rateOn('EUR', '2026-11-02')
  if (found === null) throw new Error('no rate')
  return found
}

test('behavior: uses the rate of the day, or the latest rate of the preceding week', () => {
  const rates = parseFiatRates(
    `${header}\r\n2026-11-06,EUR,0.9213,"ECB, reference rate"\r\n2026-11-09,EUR,0.93,ECB\r\n2026-11-06,CHF,0.88,SNB\r\n`,
  )
  expect(rates.rateOn('EUR', '2026-11-06')).toMatchObject({ rate: '0.9213', source: 'ECB, reference rate' })
  expect(rates.rateOn('EUR', '2026-11-08')).toMatchObject({ rate: '0.9213', date: '2026-11-06' })
  expect(rates.rateOn('EUR', '2026-11-09')).toMatchObject({ rate: '0.93' })
  expect(rates.rateOn('CHF', '2026-11-13')).toMatchObject({ rate: '0.88' })
  expect(rates.rateOn('CHF', '2026-11-14')).toBeNull()
  expect(rates.rateOn('EUR', '2026-11-05')).toBeNull()
  expect(rates.rateOn('USD', '2026-11-06')).toBeNull()
})

test.each([
  [50_000n, '0.9213', 46_065n],
  [1n, '0.5', 1n],
  [-1n, '0.5', -1n],
  [1n, '0.499999999999', 0n],
  [-3n, '0.5', -2n],
  [1_000_000n, '150.123456789', 150_123_457n],
  [0n, '2', 0n],
])(
  'behavior: converts %i at the rate %s, rounded to the nearest millionth, and halves away from zero: %i',
  (amount, rate, expected) => {
    expect(convert(amount, rateOf(rate))).toBe(expected)
  },
)

test('behavior: a converted amount is never wrong by more than half a millionth, for positive and negative amounts', () => {
  const amounts = fc.bigInt({ min: -(2n ** 63n), max: 2n ** 63n })
  const rates = fc.bigInt({ min: 1n, max: 10n ** 15n })
  fc.assert(
    fc.property(amounts, rates, (amount, scaled) => {
      const rate = { ...rateOf('1'), scaled }
      const error = convert(amount, rate) * 10n ** 12n - amount * scaled
      expect(2n * (error < 0n ? -error : error)).toBeLessThanOrEqual(10n ** 12n)
      expect(convert(-amount, rate)).toBe(-convert(amount, rate))
    }),
  )
})

test.each([
  ['', 'line 1'],
  ['date,currency,rate\n', 'line 1'],
  [`${header}\n2026-02-30,EUR,0.9,ECB`, 'line 2: expected a date'],
  [`${header}\n2026-11-02,Euro,0.9,ECB`, 'line 2: expected a currency'],
  [`${header}\n\n2026-11-02,EUR,1e3,ECB`, 'line 3: expected a decimal rate'],
  [`${header}\n2026-11-02,EUR,-0.9,ECB`, 'line 2: expected a decimal rate'],
  [`${header}\n2026-11-02,EUR,0.0000000000001,ECB`, 'line 2: expected a decimal rate'],
  [`${header}\n2026-11-02,EUR,0.0,ECB`, 'line 2: expected a rate above 0'],
  [`${header}\n2026-11-02,EUR,0.9`, 'line 2: expected a source'],
])('error: rejects %j', (text, message) => {
  expect(() => parseFiatRates(text)).toThrow(message)
})

test('behavior: reads the file again once it has changed, and reports why the file can’t be read', async () => {
  const folder = await mkdtemp(join(tmpdir(), 'rates-'))
  const path = join(folder, 'rates.csv')
  try {
    const read = openFiatRates(path)
    await expect(read()).rejects.toMatchObject({ code: 'dependency_unavailable', message: /ENOENT/ })
    await writeFile(path, `${header}\n2026-11-02,EUR,0.9,ECB\n`)
    expect((await read()).rateOn('EUR', '2026-11-02')).toMatchObject({ rate: '0.9' })
    await writeFile(path, `${header}\n2026-11-02,EUR,0.8,ECB\n`)
    await utimes(path, new Date(), new Date(Date.now() + 5_000))
    expect((await read()).rateOn('EUR', '2026-11-02')).toMatchObject({ rate: '0.8' })
    await writeFile(path, `${header}\n2026-11-02,EUR,nothing,ECB\n`)
    await expect(read()).rejects.toThrow(/line 2/)
    await expect(read()).rejects.not.toThrow(folder)
  } finally {
    await rm(folder, { recursive: true })
  }
  expect((await openFiatRates(null)()).rateOn('EUR', '2026-11-02')).toBeNull()
})
