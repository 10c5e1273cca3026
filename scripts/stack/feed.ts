import type { ServiceName } from './stack.ts'

/** One line of news for a person, out of one line of a process's log; undefined where it is none. */
export function describeLine(name: ServiceName, line: string): string | undefined {
  void name
  void line
  return undefined
}
