import { readFileSync, statSync } from 'node:fs'
import { resolve } from 'node:path'
import { ConfigError, type Environment, readVariable } from '@tollkeeper/runtime/env'
import { ProtocolError } from '@tollkeeper/sdk/protocol/errors'
import { defineNetworks, readNetworks } from '@tollkeeper/sdk/protocol/networkDefinition'
import { isProductionChain, isTestChain } from './knownChains.ts'

const variable = 'NETWORKS_FILE'
const mostBytes = 1_000_000

/**
 * Adds the networks of `NETWORKS_FILE` to this process. Every program calls it before it reads a network's name. A second call
 * with the same file changes nothing.
 *
 * @throws {ConfigError} if anything in the file is wrong; then no network is added.
 */
export function loadNetworksFile(env: Environment): void {
  const path = readVariable(env, variable)
  if (path === null) return
  const file = resolve(path)
  const json = parseFile(file, readText(file))
  try {
    for (const { name, chainId, testnet } of readNetworks(json).added) {
      const isMixedUp = testnet ? isProductionChain(chainId) : isTestChain(chainId)
      if (isMixedUp)
        throw new ConfigError(
          variable,
          `the right kind of money for ${name}`,
          `testnet ${testnet}, but chain ${chainId} is a ${testnet ? 'production' : 'test'} network. Correct the field testnet in ${file}`,
        )
    }
    defineNetworks(json)
  } catch (error) {
    if (!(error instanceof ProtocolError)) throw error
    throw new ConfigError(
      variable,
      'networks as docs/networks.md describes them',
      `${file}: ${error.message}`,
    )
  }
}

function readText(file: string): string {
  const expected = 'the path of a readable JSON file'
  try {
    if (statSync(file).size > mostBytes)
      throw new ConfigError(variable, `a file of at most ${mostBytes} bytes`, file)
    return readFileSync(file, 'utf8')
  } catch (error) {
    if (error instanceof ConfigError) throw error
    const { code = 'an error' } = error as NodeJS.ErrnoException
    throw new ConfigError(variable, expected, `${code} for ${file}`)
  }
}

function parseFile(file: string, text: string): unknown {
  let json: unknown
  try {
    json = JSON.parse(text)
  } catch (error) {
    throw new ConfigError(variable, 'valid JSON', `${file}: ${(error as Error).message}`)
  }
  const twice = findRepeatedKey(text)
  if (twice !== undefined)
    throw new ConfigError(variable, 'each key of an object once', `"${twice.slice(0, 40)}" twice in ${file}`)
  return json
}

/**
 * Finds a key that an object has twice. `JSON.parse` silently keeps the last value, but a person may read the first one.
 *
 * @param text valid JSON.
 */
function findRepeatedKey(text: string): string | undefined {
  const objects: Set<string>[] = []
  // A string followed by a colon is a key. Of the other tokens, only those that open or close an object matter.
  for (const [token, key] of text.matchAll(/("(?:[^"\\]|\\.)*")\s*:|"(?:[^"\\]|\\.)*"|[{}]/g)) {
    if (token === '{') objects.push(new Set())
    else if (token === '}') objects.pop()
    else if (key !== undefined) {
      const name = JSON.parse(key) as string
      const keys = objects.at(-1)
      if (keys?.has(name)) return name
      keys?.add(name)
    }
  }
  return undefined
}
