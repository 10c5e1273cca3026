import type { Parser } from './parsers.ts'
import { removedVariables, type Variable, type Variables, variables } from './variables.ts'

export type Environment = Readonly<Record<string, string | undefined>>

export type VariableName = keyof Variables

/** A variable's value, or null if it is unset and has no default. */
export type VariableValue<Name extends VariableName> = Variables[Name] extends { parser: Parser<infer T> }
  ? Variables[Name] extends { default: string }
    ? T
    : T | null
  : never

/** The environment is wrong; the message names the variable, what was expected, and what came unless that is a secret. */
export class ConfigError extends Error {
  override name = 'ConfigError'

  constructor(variable: string, expected: string, got?: string) {
    super(`${variable}: expected ${expected}${got === undefined ? ', but it is not set' : `, got ${got}`}`)
  }
}

/**
 * A variable's value, or its default if it is unset, or null. An empty or blank variable is unset, in every process.
 *
 * @throws {ConfigError}
 */
export function readVariable<Name extends VariableName>(env: Environment, name: Name): VariableValue<Name> {
  const { parser, default: fallback } = variables[name] as { parser: Parser<unknown>; default?: string }
  const text = textOf(env, name) ?? fallback
  return (text === undefined ? null : parseText(name, text, parser)) as VariableValue<Name>
}

/**
 * As {@link readVariable}, for variables that a process can't do without.
 *
 * @throws {ConfigError} also if it is unset.
 */
export function requireVariable<Name extends VariableName>(
  env: Environment,
  name: Name,
): NonNullable<VariableValue<Name>> {
  const value = readVariable(env, name)
  if (value === null) throw new ConfigError(name, variables[name].parser.expected)
  return value as NonNullable<VariableValue<Name>>
}

/**
 * Calls these readers before a process reads its settings one by one, so that its operator learns of all that is missing at once.
 *
 * @throws {ConfigError} with a line for each reader that throws one.
 */
export function requireTogether(...readers: readonly (() => unknown)[]): void {
  const faults: ConfigError[] = []
  for (const read of readers) {
    try {
      read()
    } catch (error) {
      if (!(error instanceof ConfigError)) throw error
      faults.push(error)
    }
  }
  const [first] = faults
  if (first === undefined) return
  first.message = [...new Set(faults.map(({ message }) => message))].join('\n')
  throw first
}

/** Whether the environment sets a variable. */
export function isSet(env: Environment, name: VariableName): boolean {
  return textOf(env, name) !== undefined
}

/** @throws {ConfigError} under the name of the variable that the text came from. */
export function parseText<T>(name: string, text: string, parser: Parser<T>): T {
  const { parse, expected, isSecret, explain } = parser
  let value: T | undefined
  try {
    value = parse(text)
  } catch {
    value = undefined
  }
  if (value === undefined) {
    const got = explain?.(text) ?? (isSecret ? 'something else' : JSON.stringify(text))
    throw new ConfigError(name, expected, got)
  }
  return value
}

function textOf(env: Environment, name: string): string | undefined {
  return env[name]?.trim() || undefined
}

/** A variable that is set although no process reads it, and why that may be. */
export type UnreadVariable = { name: string; hint: string }

/**
 * Finds set variables that no server reads: those that earlier builds read, and names that differ from a known one by a single typing
 * error. Variables of buyers' commands count as unread: `NETWORK` may be a typing error for `NETWORKS`.
 */
export function findUnread(env: Environment): UnreadVariable[] {
  const known = (Object.keys(variables) as VariableName[]).filter((name) =>
    (variables[name] as Variable).readers.some((reader) => reader !== 'buy' && reader !== 'mcp'),
  )
  return Object.keys(env)
    .filter((name) => !known.includes(name as VariableName) && name.length > 6)
    .flatMap((name) => {
      const instead = removedVariables[name]
      if (instead !== undefined)
        return textOf(env, name) === undefined ? [] : [{ name, hint: `removed: ${instead}` }]
      const meant = known.find((one) => isNear(name, one))
      return meant === undefined ? [] : [{ name, hint: `is it ${meant}?` }]
    })
}

/** Whether `a` comes from `b` by adding, removing or changing one letter, or exchanging two neighbours. */
function isNear(a: string, b: string): boolean {
  if (Math.abs(a.length - b.length) > 1) return false
  let start = 0
  while (start < a.length && a[start] === b[start]) start += 1
  const [left, right] = [a.slice(start), b.slice(start)]
  return (
    left.slice(1) === right ||
    left === right.slice(1) ||
    left.slice(1) === right.slice(1) ||
    (left.slice(2) === right.slice(2) && left[0] === right[1] && left[1] === right[0])
  )
}
