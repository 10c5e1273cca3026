import { type NetworkName, networkNames } from '@tollkeeper/sdk/protocol/networks'
import type { Parser } from './parsers.ts'
import {
  networkVariable,
  removedVariables,
  rpcUrls,
  type Variable,
  type Variables,
  variables,
} from './variables.ts'

export type Environment = Readonly<Record<string, string | undefined>>

export type VariableName = keyof Variables

/** A variable's value, or null if it is unset and has no default. */
export type VariableValue<Name extends VariableName> = Variables[Name] extends { parser: Parser<infer T> }
  ? Variables[Name] extends { default: string }
    ? T
    : T | null
  : never

/**
 * Thrown if the environment is wrong. The message names the variable, the expected value and, unless it is a secret, the received value.
 */
export class ConfigError extends Error {
  override name = 'ConfigError'

  constructor(variable: string, expected: string, got?: string) {
    super(`${variable}: expected ${expected}${got === undefined ? ', but it is not set' : `, got ${got}`}`)
  }
}

/**
 * Returns a variable's value. If the variable is unset, returns its default, or null if it has none. An empty or blank variable counts as unset, in
 * every process.
 *
 * @throws {ConfigError}
 */
export function readVariable<Name extends VariableName>(env: Environment, name: Name): VariableValue<Name> {
  const { parser, default: fallback } = variables[name] as { parser: Parser<unknown>; default?: string }
  const text = textOf(env, name) ?? fallback
  return (text === undefined ? null : parseText(name, text, parser)) as VariableValue<Name>
}

/**
 * Reads a variable that a process requires, like {@link readVariable}.
 *
 * @throws {ConfigError} also if the variable is unset.
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
 * Returns the nodes of a network: `RPC_URL_<NETWORK>`. Null if it is unset.
 *
 * @throws {ConfigError}
 */
export function readRpcUrls(env: Environment, network: NetworkName): string[] | null {
  const name = networkVariable('RPC_URL', network)
  const text = textOf(env, name)
  return text === undefined ? null : parseText(name, text, rpcUrls)
}

/**
 * Reads nodes like {@link readRpcUrls}, for a caller that requires a node.
 *
 * @throws {ConfigError} also if the variable is unset.
 */
export function requireRpcUrls(env: Environment, network: NetworkName): string[] {
  const urls = readRpcUrls(env, network)
  if (urls === null) throw new ConfigError(networkVariable('RPC_URL', network), rpcUrls.expected)
  return urls
}

/**
 * Calls all these readers before a process reads its settings one by one, so that the operator sees all missing settings in one
 * error.
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

/** Whether the environment has a non-empty value for a variable. */
export function isSet(env: Environment, name: VariableName): boolean {
  return textOf(env, name) !== undefined
}

/** Runs a parser for text from a variable. @throws {ConfigError} with the name of that variable. */
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

/** A variable that is set although no process reads it, and the probable mistake. */
export type UnreadVariable = { name: string; hint: string }

/**
 * Finds variables that are set but that no server reads: variables that earlier builds read, and variables whose name differs from a known name by a
 * single typing error. Variables of buyers' commands count as unknown, because `NETWORK` may be a typing error for `NETWORKS`.
 */
export function findUnread(env: Environment): UnreadVariable[] {
  const servers = (Object.keys(variables) as VariableName[]).filter((name) =>
    (variables[name] as Variable).readers.some((reader) => reader !== 'buy' && reader !== 'mcp'),
  )
  const known: string[] = [...servers, ...networkNames.map((name) => networkVariable('RPC_URL', name))]
  return Object.keys(env)
    .filter((name) => !known.includes(name) && name.length > 6)
    .flatMap((name) => {
      const instead = removedVariables[name]
      if (instead !== undefined)
        return textOf(env, name) === undefined ? [] : [{ name, hint: `removed: ${instead}` }]
      const meant = known.find((one) => isNear(name, one))
      return meant === undefined ? [] : [{ name, hint: `is it ${meant}?` }]
    })
}

/** Whether one typing error turns `b` into `a`: a letter added, removed or changed, or two adjacent letters exchanged. */
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
