import { alignColumns } from '@tollkeeper/runtime/alignColumns'

/** A limit of a figure, in the figure's unit. */
export type Goal = { bound: 'at least' | 'at most'; goal: number }
/** The goals of a bench by the key of their figure. `a.b` is the key `b` in the object `a`. */
export type Goals = Readonly<Record<string, Goal>>
/** `met` is null if the run didn't measure the figure. */
export type Verdict = Goal & { figure: number | null; met: boolean | null }

export const atLeast = (goal: number): Goal => ({ bound: 'at least', goal })
export const atMost = (goal: number): Goal => ({ bound: 'at most', goal })

/** Compares the figures of a report with their goals. A missed goal is a result, not an error. */
export function compareWithGoals(report: object, goals: Goals): Record<string, Verdict> {
  return Object.fromEntries(
    Object.entries(goals).map(([key, goal]) => [key, judge(readFigure(report, key), goal)]),
  )
}

function judge(figure: number | null, { bound, goal }: Goal): Verdict {
  if (figure === null) return { figure, bound, goal, met: null }
  return { figure, bound, goal, met: bound === 'at least' ? figure >= goal : figure <= goal }
}

/** Returns a figure, or null if it is missing or isn't a number. */
function readFigure(report: object, key: string): number | null {
  let value: unknown = report
  for (const name of key.split('.')) value = (value as Record<string, unknown> | null | undefined)?.[name]
  return typeof value === 'number' && Number.isFinite(value) ? value : null
}

/** Formats one line per goal: the figure, its goal, and whether it is met. */
export function formatGoals(verdicts: Record<string, Verdict>): string[] {
  return alignColumns(
    ['figure', 'measured', 'goal', ''],
    Object.entries(verdicts).map(([key, { figure, bound, goal, met }]) => [
      key,
      String(figure ?? ''),
      `${bound === 'at least' ? '≥' : '≤'} ${goal}`,
      met === null ? 'not measured' : met ? 'met' : 'MISSED',
    ]),
  )
}
