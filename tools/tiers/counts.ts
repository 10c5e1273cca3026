import { stripVTControlCharacters } from 'node:util'

/** Numbers of tests or checks, by result. */
export type Counts = { passed: number; failed: number; skipped: number }

export const none: Counts = { passed: 0, failed: 0, skipped: 0 }

export function add(...all: readonly Counts[]): Counts {
  return all.reduce(
    (sum, { passed, failed, skipped }) => ({
      passed: sum.passed + passed,
      failed: sum.failed + failed,
      skipped: sum.skipped + skipped,
    }),
    none,
  )
}

/**
 * Counts what a command printed: Hardhat's "85 passing", "1 failing" and "2 skipped", and mutateContract.ts' "11 of 12 mutants were caught". A
 * command that prints no counts is one check. A command that fails without a failed test counts as one failure.
 */
export function countOutput(output: string, succeeded: boolean): Counts {
  const plain = stripVTControlCharacters(output)
  const sum = (word: string) =>
    [...plain.matchAll(new RegExp(`^ *(\\d+) ${word}\\b`, 'gm'))].reduce((all, [, n]) => all + Number(n), 0)
  const [, caught = '0', tried = '0'] = /^(\d+) of (\d+) mutants were caught$/m.exec(plain) ?? []
  const passed = sum('passing') + Number(caught)
  const failed = sum('failing') + Number(tried) - Number(caught)
  const skipped = sum('skipped')
  if (!succeeded) return { passed, failed: Math.max(failed, 1), skipped }
  return { passed: Math.max(passed, 1), failed, skipped }
}

export function formatTier(name: string, { passed, failed, skipped }: Counts): string {
  return `${name}: ${passed} passed, ${failed} failed, ${skipped} skipped`
}

/**
 * Sums lines of {@link formatTier} in the order of `names`. A tier whose line is missing counts as one failure: it ended before it could
 * count, for example because an install failed.
 */
export function sumTiers(text: string, names: readonly string[]): { lines: string[]; total: Counts } {
  const line = /^(.+): (\d+) passed, (\d+) failed, (\d+) skipped$/gm
  const known = new Map(
    [...text.matchAll(line)].map(([, name = '', passed, failed, skipped]) => [
      name,
      { passed: Number(passed), failed: Number(failed), skipped: Number(skipped) },
    ]),
  )
  const tiers = names.map((name) => ({ name, counts: known.get(name) ?? { ...none, failed: 1 } }))
  return {
    lines: tiers.map(({ name, counts }) => formatTier(name, counts)),
    total: add(...tiers.map(({ counts }) => counts)),
  }
}

/** The last line of `test:all` and of CI. */
export function formatTotal({ passed, failed, skipped }: Counts): string {
  return `${passed} passed, ${failed} failed${skipped > 0 ? `, ${skipped} skipped` : ''}`
}

/**
 * Completes the arguments of Vitest. A separate reporter counts the tests, in addition to the reporters that the caller selects. The path of a file
 * selects that file, even if it belongs to another tier. Any other filter applies to the tier's projects.
 *
 * @returns `filtered`: whether only some tests are to run.
 */
export function selectArguments(
  tier: string,
  args: readonly string[],
  isFile: (path: string) => boolean,
): { selected: string[]; filtered: boolean } {
  const support = './test/support'
  const reporters = args.some((arg) => arg.startsWith('--reporter'))
    ? [`${support}/tierReporter.ts`]
    : ['default', `${support}/timesReporter.ts`, `${support}/tierReporter.ts`]
  const filtered = args.some((arg) => !arg.startsWith('-'))
  const isPath = args.some((arg) => !arg.startsWith('-') && isFile(arg))
  return {
    selected: [
      ...(isPath ? [] : ['--project', `${tier}*`]),
      ...reporters.map((name) => `--reporter=${name}`),
      ...args,
    ],
    filtered,
  }
}
