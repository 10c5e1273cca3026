import { createRequire } from 'node:module'

const require = createRequire(import.meta.url)

/**
 * Finds a package that only a local chain or a database of one's own needs; servers install without it.
 *
 * @returns the path of its entry point.
 * @throws an error that says what to do.
 */
export function findOptionalPackage(name: string): string {
  try {
    return require.resolve(name)
  } catch (error) {
    const message = `${name} isn't installed, which a local chain and a database of one's own need: install without --omit=optional, on a platform that it is made for`
    throw new Error(message, { cause: error })
  }
}
