/**
 * `node --import`, before any TypeScript: says which Node is needed where this one can't run TypeScript.
 *
 * npm puts the one of the package `node` first in the path; but its install script brings it, and not every installation
 * runs those.
 */
const [major = 0, minor = 0] = process.versions.node.split('.').map(Number)

if (major < 22 || (major === 22 && minor < 18)) {
  process.stderr.write(
    `This needs Node 22.18 or newer and runs in ${process.versions.node}. npm ci brings one along where install scripts run: not with --ignore-scripts, nor with pnpm unless they are allowed. Else install Node itself\n`,
  )
  process.exit(2)
}
