/**
 * The command that runs `tollkeeper`, wherever we print it.
 *
 * The name isn't published on npm yet. Plain `npx tollkeeper` would fetch any package that a stranger publishes under it, and run that package with
 * the keys in the environment. With this flag, npx runs only what is installed here. Change it to `npx tollkeeper` when we own the name.
 */
export const ownCommand = 'npx --no-install tollkeeper'

/** Where the command runs. For readers who are elsewhere, for example of a mail or a page. */
export const whereItRuns = 'in a checkout of Tollkeeper, or where its tarball is installed'
