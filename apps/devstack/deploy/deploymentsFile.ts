import { readFile, rename, writeFile } from 'node:fs/promises'
import { committedDeployments } from '@tollkeeper/sdk/protocol/deployments'
import type { NetworkName } from '@tollkeeper/sdk/protocol/networks'

/** A network's entry in the file; `startBlock` is null before the contract is deployed. */
export type RecordedDeployment = {
  batchSettlement: string
  splitterFactory: string
  tabSettlement: string
  usdc: string
  startBlock: number | null
}

type DeploymentsFile = { [network: string]: RecordedDeployment }

/** @returns `{}` if there is no such file. */
export async function readDeploymentsFile(path: string): Promise<DeploymentsFile> {
  let text: string
  try {
    text = await readFile(path, 'utf8')
  } catch (error) {
    if (error instanceof Error && 'code' in error && error.code === 'ENOENT') return {}
    throw error
  }
  const json: unknown = JSON.parse(text)
  if (typeof json !== 'object' || json === null || Array.isArray(json)) {
    throw new Error(`${path} must hold a JSON object by network name`)
  }
  return json as DeploymentsFile
}

/**
 * Replaces one network's entry and keeps the others. The file is written completely or not at all. A new file also gets the
 * deployments that this version ships with, because a program that reads the file doesn't use the shipped list.
 */
export async function recordDeployment(
  path: string,
  network: NetworkName,
  deployment: RecordedDeployment,
): Promise<void> {
  const known = await readDeploymentsFile(path)
  const others = Object.keys(known).length > 0 ? known : committedDeployments
  const deployments = { ...others, [network]: deployment }
  const temporary = `${path}.${process.pid}.tmp`
  await writeFile(temporary, `${JSON.stringify(deployments, null, 2)}\n`)
  await rename(temporary, path)
}
