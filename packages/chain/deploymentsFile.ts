import { existsSync } from 'node:fs'
import { resolve } from 'node:path'
import { fileURLToPath } from 'node:url'
import { type Environment, readVariable } from '@tollkeeper/runtime/env'

/** How this program was installed, and the working directory. Unlike a checkout, an installed package's own folder must stay unchanged. */
export type Place = { isCheckout: boolean; folder: string }

const committedFile = fileURLToPath(new URL('../../sdk/src/protocol/deployments.json', import.meta.url))

const here = (): Place => ({ isCheckout: import.meta.filename.endsWith('.ts'), folder: process.cwd() })

/**
 * Returns the file that `deploy` writes and all programs read: `DEPLOYMENTS_FILE`, otherwise a checkout's
 * committed file, otherwise `deployments.json` in the working directory.
 */
export function locateDeployments(env: Environment, { isCheckout, folder }: Place = here()): string {
  const named = readVariable(env, 'DEPLOYMENTS_FILE')
  if (named !== null) return resolve(folder, named)
  return isCheckout ? committedFile : resolve(folder, 'deployments.json')
}

/**
 * Returns the file of {@link locateDeployments}. Returns undefined if the addresses that are part of this version apply: the file is
 * the committed one, or doesn't exist yet.
 */
export function findDeployments(env: Environment, place: Place = here()): string | undefined {
  const path = locateDeployments(env, place)
  return path === committedFile || (readVariable(env, 'DEPLOYMENTS_FILE') === null && !existsSync(path))
    ? undefined
    : path
}
