import { existsSync } from 'node:fs'
import { resolve } from 'node:path'
import { fileURLToPath } from 'node:url'
import { type Environment, readVariable } from '@tollkeeper/runtime/env'

/** Where we run: from a checkout, or installed as JavaScript, in a folder that nobody should write to. */
export type Place = { isCheckout: boolean; folder: string }

const committedFile = fileURLToPath(new URL('../../sdk/src/protocol/deployments.json', import.meta.url))

const here = (): Place => ({ isCheckout: import.meta.filename.endsWith('.ts'), folder: process.cwd() })

/**
 * The file that `deploy` writes and everybody reads: `DEPLOYMENTS_FILE`, else a checkout's committed one,
 * else `deployments.json` in the working directory.
 */
export function locateDeployments(env: Environment, { isCheckout, folder }: Place = here()): string {
  const named = readVariable(env, 'DEPLOYMENTS_FILE')
  if (named !== null) return resolve(folder, named)
  return isCheckout ? committedFile : resolve(folder, 'deployments.json')
}

/** As {@link locateDeployments}; undefined if no deployment was recorded, so that those of this version hold. */
export function findDeployments(env: Environment, place: Place = here()): string | undefined {
  const path = locateDeployments(env, place)
  return path === committedFile || (readVariable(env, 'DEPLOYMENTS_FILE') === null && !existsSync(path))
    ? undefined
    : path
}
