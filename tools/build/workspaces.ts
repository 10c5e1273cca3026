import { glob, readFile } from 'node:fs/promises'
import { join } from 'node:path'

export type Manifest = {
  name: string
  dependencies?: Record<string, string>
  devDependencies?: Record<string, string>
}

/** Reads the package.json of the root and of each workspace, by their paths in the repository. */
export async function readManifests(root: string): Promise<Map<string, Manifest>> {
  const manifests = new Map<string, Manifest>()
  const read = async (path: string) =>
    manifests.set(path, JSON.parse(await readFile(join(root, path), 'utf8')) as Manifest)
  await read('package.json')
  const { workspaces } = manifests.get('package.json') as Manifest & { workspaces: string[] }
  for await (const path of glob(
    workspaces.map((pattern) => `${pattern}/package.json`),
    { cwd: root },
  ))
    await read(path.replaceAll('\\', '/'))
  return manifests
}

/**
 * Returns the exact version of every package that a workspace names. A package has the same version everywhere.
 *
 * @throws if two workspaces name different versions of a package
 */
export async function readPins(root: string): Promise<Record<string, string>> {
  const pins: Record<string, string> = {}
  for (const [path, { dependencies, devDependencies }] of await readManifests(root))
    for (const [name, version] of Object.entries({ ...devDependencies, ...dependencies })) {
      if (name.startsWith('@tollkeeper/')) continue
      const known = pins[name]
      if (known !== undefined && known !== version)
        throw new Error(`${path} names ${name} ${version}, another package.json ${known}: use one version`)
      pins[name] = version
    }
  return pins
}
