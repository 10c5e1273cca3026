/**
 * Runs one of our programs in this process, as `node <program>` with these arguments would.
 *
 * @param load imports the program, which runs it. An `import()` written out, so that the package's build follows it.
 */
export async function runProgram(load: () => Promise<unknown>, args: readonly string[] = []): Promise<void> {
  process.argv.splice(2, Number.POSITIVE_INFINITY, ...args)
  await load()
}
