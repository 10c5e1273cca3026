import { createRequire } from 'node:module'

const require = createRequire(import.meta.url)

/**
 * Finds a package that only a local chain or a local database needs. Servers are installed without such packages.
 *
 * @returns the path of the package's entry point.
 * @throws an error that says how to install the package.
 */
export function findOptionalPackage(name: string): string {
  try {
    return require.resolve(name)
  } catch (error) {
    const message = `the package ${name} is needed for a local chain and a local database, but isn't installed: install without --omit=optional, on a platform that the package supports`
    throw new Error(message, { cause: error })
  }
}
