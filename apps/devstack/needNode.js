/**
 * For `node --import`, before any TypeScript is loaded: reports the required Node version if this one can't run TypeScript.
 *
 * npm puts the package `node` first in the path, but its install script downloads Node, and not every installation runs such
 * scripts.
 */
const [major = 0, minor = 0] = process.versions.node.split('.').map(Number)

if (major < 22 || (major === 22 && minor < 18)) {
  process.stderr.write(
    `This program needs Node 22.18 or newer, but runs in ${process.versions.node}. npm ci installs one if install scripts are allowed: not with --ignore-scripts, and with pnpm only if you allow them. Otherwise install Node yourself\n`,
  )
  process.exit(2)
}
