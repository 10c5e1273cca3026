/**
 * The command that runs `tollkeeper`, as all our texts print it.
 *
 * The name isn't published on npm yet. If a stranger publishes a package with this name, plain `npx tollkeeper` would download that package and run
 * it with the keys in the environment. With `--no-install`, npx runs only an installed package. Change this text to `npx tollkeeper` when we own the
 * name.
 */
export const ownCommand = 'npx --no-install tollkeeper'

/** States where the command runs, for texts that people read elsewhere, for example in a mail or on a page. */
export const whereItRuns = 'in a checkout of Tollkeeper, or where its tarball is installed'
