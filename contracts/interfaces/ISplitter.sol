// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

/// @title Splits what it receives between a provider and the platform
/// @notice The recipient of a payment that is one signature. It has no owner and no storage: its terms are part of its
/// address, so whoever knows the terms can recompute the address, and nobody can change where the money goes. Anyone may
/// sweep it at any time, of any ERC-20.
/// @dev A clone (ERC-1167) with its terms as immutable arguments, made by ISplitterFactory. It emits nothing: the token's
/// own logs show the platform's part and then the provider's.
interface ISplitter {
    /// @notice What this splitter pays to whom. Each share is below 2^48.
    /// @return provider Recipient of `providerShare` parts.
    /// @return providerShare Parts of the provider.
    /// @return platform Recipient of `platformShare` parts.
    /// @return platformShare Parts of the platform.
    function terms()
        external
        view
        returns (address provider, uint256 providerShare, address platform, uint256 platformShare);

    /// @notice Pays out all that is there, or nothing of it. The platform's part is rounded down, and the rest is the
    /// provider's. Where nothing is there, nothing happens: somebody else swept first.
    /// @dev What the platform's address can't be paid goes to a splitter of its own, that of the terms (platform, 1, platform,
    /// 0): so a blacklisted platform stops no provider, and what is the platform's is never split again. The provider must be
    /// paid: otherwise nothing moves.
    /// @param token The ERC-20 to pay out.
    function sweep(address token) external;
}
