/** The app is built only once, so a build cache would be useless. */
export default { experimental: { turbopackFileSystemCacheForBuild: false } }
