/**
 * Runs one of our programs in this process, as `node <program>` would with these arguments.
 *
 * @param load imports the program, which runs on import. The caller writes out the `import()`, so that the package's build finds
 * it.
 */
export async function runProgram(load: () => Promise<unknown>, args: readonly string[] = []): Promise<void> {
  process.argv.splice(2, Number.POSITIVE_INFINITY, ...args)
  await load()
}
