import { createHash } from 'node:crypto'
import { readdir, readFile, rename, rm, stat, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import type { Plugin } from 'esbuild'

const root = join(import.meta.dirname, '..')
const source = fileURLToPath(new URL('../../', import.meta.resolve('ponder')))
const entries = {
  'bin/ponder': join(source, 'dist/esm/bin/ponder.js'),
  index: join(source, 'dist/esm/index.js'),
  // Bundled separately, because Ponder and our files must share one instance of viem.
  viem: fileURLToPath(import.meta.resolve('viem')),
}

/**
 * Bundles the installed Ponder, because Node takes seconds to find and link its 3,800 modules (indexer/DECISIONS.md).
 *
 * @returns a folder with the same layout as the package. It is built at first use and kept.
 */
export function bundlePonder(): Promise<string> {
  bundled ??= findOrWriteBundle()
  return bundled
}

/** The bundle's folder. It is kept, so that a process hashes Ponder's sources only once. */
let bundled: Promise<string> | undefined

async function findOrWriteBundle(): Promise<string> {
  const folder = join(root, 'node_modules/.cache', `ponder-${await hashSources(source)}`)
  if (await isFolder(folder)) return folder

  const unfinished = `${folder}-${process.pid}`
  await writeBundle(unfinished)
  // If several processes build the bundle at once, the first one wins.
  await rename(unfinished, folder).catch(async (error) => {
    await rm(unfinished, { recursive: true })
    if (!(await isFolder(folder))) throw error
  })
  return folder
}

/** Returns a hash of a bundle's sources: the locked versions, our files, and Ponder's installed files, including local patches. */
export async function hashSources(ponder: string): Promise<string> {
  const own = ['package-lock.json', 'indexer/bundlePonder.ts', 'indexer/loadByNode.ts'].map((path) =>
    join(root, path),
  )
  const dist = join(ponder, 'dist/esm')
  const files = (await readdir(dist, { recursive: true })).filter((path) => path.endsWith('.js')).sort()
  const hash = createHash('sha256')
  for (const path of [...own, ...files.map((file) => join(dist, file))]) hash.update(await readFile(path))
  return hash.digest('hex').slice(0, 16)
}

/**
 * Writes the bundle.
 *
 * @param folder the folder to create
 * @returns the bundled packages, as paths below node_modules
 */
export async function writeBundle(folder: string): Promise<string[]> {
  const { build } = await import('esbuild')
  const { metafile } = await build({
    entryPoints: entries,
    outdir: join(folder, 'dist/esm'),
    absWorkingDir: root,
    bundle: true,
    splitting: true,
    format: 'esm',
    platform: 'node',
    target: 'node22',
    mainFields: ['module', 'main'],
    external: ['pg-native'],
    plugins: [replaceUnused, editPonder],
    banner: {
      js: "import { createRequire } from 'node:module'; const require = createRequire(import.meta.url);",
    },
    legalComments: 'none',
    metafile: true,
    logLevel: 'error',
  })
  const { name, version } = JSON.parse(await readFile(join(source, 'package.json'), 'utf8'))
  await writeFile(join(folder, 'package.json'), JSON.stringify({ name, version, type: 'module' }))
  const paths = Object.keys(metafile.inputs).flatMap(
    (path) => /^node_modules\/((?:.*\/node_modules\/)?(?:@[^/]+\/)?[^/]+)/.exec(path)?.[1] ?? [],
  )
  return [...new Set(paths)].sort()
}

/**
 * Replaces the parts of Ponder that aren't needed here:
 *
 * - vite
 * - PGlite, an embedded database that Ponder can use instead of Postgres
 * - the code that writes `ponder-env.d.ts`. Only editors read this file, and writing it may fail in an installed package.
 */
const replaceUnused: Plugin = {
  name: 'replaceUnused',
  setup({ onResolve, onLoad }) {
    onResolve({ filter: /^vite($|-node\/|-tsconfig-paths$)/ }, () => ({
      path: join(import.meta.dirname, 'loadByNode.ts'),
    }))
    onResolve({ filter: /^@electric-sql\/pglite$/ }, () => ({ path: 'pglite', namespace: 'none' }))
    onResolve({ filter: /\/utils\/codegen\.js$/ }, () => ({ path: 'codegen', namespace: 'none' }))
    onLoad({ filter: /^codegen$/, namespace: 'none' }, () => ({
      contents: 'export function runCodegen() {}',
    }))
    onLoad({ filter: /^pglite$/, namespace: 'none' }, () => ({
      contents:
        "export const types = {}\nexport class PGlite { constructor() { throw new Error('no PGlite') } }",
    }))
  },
}

const table = `"\${schema}"."\${chainId === undefined ? getTableName(table) : getPartitionName(table, chainId)}"`
const rowTrigger = `AFTER INSERT OR UPDATE OR DELETE ON ${table}
  FOR EACH ROW EXECUTE PROCEDURE "\${schema}".\${getReorgProcedureName(table)};
  \`));`

/** A trigger that runs once per statement. It stores inserted rows in the same form as Ponder's own trigger, which runs once per row. */
const insertTrigger = `
            await tx.wrap({ label: "create_trigger" }, (tx) => tx.execute(\`
  CREATE OR REPLACE FUNCTION "\${schema}"."\${getTableName(table)}_inserted"()
  RETURNS TRIGGER AS $$
  BEGIN
  INSERT INTO "\${schema}"."\${getReorgTableName(table)}" (\${columnNames.join(",")}, operation, checkpoint)
  SELECT \${columnNames.join(",")}, 0, '\${MAX_CHECKPOINT_STRING}' FROM inserted;
  RETURN NULL;
  END;
  $$ LANGUAGE plpgsql\`));
            await tx.wrap({ label: "create_trigger" }, (tx) => tx.execute(\`
  CREATE OR REPLACE TRIGGER "\${getReorgTriggerName()}_inserted"
  AFTER INSERT ON ${table} REFERENCING NEW TABLE AS inserted
  FOR EACH STATEMENT EXECUTE PROCEDURE "\${schema}"."\${getTableName(table)}_inserted"();
  \`));`
const dropTrigger = `DROP TRIGGER IF EXISTS "\${getReorgTriggerName()}" ON`
const liveQueryTriggers =
  'export const createLiveQueryTriggers = async (qb, { namespaceBuild, tables, chainId, }, context) => {'
const oneCheckpoint = 'for (const { chainId, finalizedCheckpoint } of checkpoints) {'

/** Ponder's function, which Ponder calls once for each table in every block with an event. `commitBlocks` handles all tables with one statement. */
const commitBlock = 'export const commitBlock = async (qb, { checkpoint, table, preBuild, }, context) => {'
const commitBlocks = `export const commitBlocks = async (qb, { checkpoint, tables }, context) => {
    const updates = tables.map((table, index) => \`committed_\${index} AS (
      UPDATE "\${getTableConfig(table).schema ?? "public"}"."\${getReorgTableName(table)}"
      SET checkpoint = '\${checkpoint}' WHERE checkpoint = '\${MAX_CHECKPOINT_STRING}'
    )\`);
    if (updates.length > 0)
        await qb.wrap({ label: "commit_block" }, (db) => db.execute(\`WITH \${updates.join(", ")} SELECT\`), context);
};
`

/** Changes to Ponder's source, by file: pairs of an original text, which occurs exactly once, and its replacement. */
const edits: Readonly<Record<string, readonly (readonly [string, string])[]>> = {
  'database/index.js': [
    // Skips the checkpoint of a chain that the schema contains but this start leaves out (launch.ts). Otherwise Ponder would fail, because it has no
    // block of that chain to compare the checkpoint with.
    [oneCheckpoint, `${oneCheckpoint} if (!chains.some((one) => one.id === chainId)) continue;`],
  ],
  'database/actions.js': [
    // Stores inserted rows for a possible reorg with one statement instead of one for each row. Updates and deletions are rare.
    [rowTrigger, rowTrigger.replace('INSERT OR ', '') + insertTrigger],
    [dropTrigger, `DROP TRIGGER IF EXISTS "\${getReorgTriggerName()}_inserted" ON ${table}; ${dropTrigger}`],
    [commitBlock, commitBlocks + commitBlock],
    // Removes live queries, which aren't used here. They would need a temporary table in each block, and triggers for each row.
    [liveQueryTriggers, `${liveQueryTriggers} return;`],
  ],
  'runtime/multichain.js': [
    ['import { commitBlock, ', 'import { commitBlocks, '],
    [
      'await Promise.all(tables.map((table) => commitBlock(tx, { table, checkpoint, preBuild }, context)));',
      'await commitBlocks(tx, { tables, checkpoint }, context);',
    ],
    [
      `tx.execute(\`CREATE TEMP TABLE \${getLiveQueryTempTableName()} (table_name TEXT PRIMARY KEY) ON COMMIT DROP\`)`,
      'Promise.resolve()',
    ],
  ],
}

/** Applies the changes to Ponder's source that this project needs. */
const editPonder: Plugin = {
  name: 'editPonder',
  setup({ onLoad }) {
    const filter =
      /[\\/]ponder[\\/]dist[\\/]esm[\\/](database[\\/](index|actions)|runtime[\\/]multichain)\.js$/
    onLoad({ filter }, async ({ path }) => {
      const [, file = ''] = path.replaceAll('\\', '/').split('/dist/esm/')
      let contents = await readFile(path, 'utf8')
      for (const [from, to] of edits[file] ?? []) {
        if (contents.split(from).length !== 2)
          throw new Error(
            `${path} differs from the version of Ponder for which the edits in indexer/bundlePonder.ts were made`,
          )
        contents = contents.replace(from, () => to)
      }
      return { contents }
    })
  },
}

async function isFolder(path: string): Promise<boolean> {
  return stat(path).then(
    (found) => found.isDirectory(),
    () => false,
  )
}

if (import.meta.main) await bundlePonder()
