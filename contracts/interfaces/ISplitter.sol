// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

/// @title Splits what it receives between a provider and the platform
/// @notice A splitter is the recipient of a one-signature payment. It has no owner and no storage: its terms are part of
/// its address, so anyone who knows the terms can recompute the address, and no one can change where the money goes.
/// Anyone may sweep any ERC-20 from it at any time.
/// @dev A clone (ERC-1167) with its terms as immutable arguments, made by ISplitterFactory. A splitter emits nothing: the
/// token's own logs show the platform's part and then the provider's.
interface ISplitter {
    /// @notice Returns whom this splitter pays, and in which shares. Each share is below 2^48.
    /// @return provider Recipient of `providerShare` parts.
    /// @return providerShare The provider's parts.
    /// @return platform Recipient of `platformShare` parts.
    /// @return platformShare The platform's parts.
    function terms()
        external
        view
        returns (address provider, uint256 providerShare, address platform, uint256 platformShare);

    /// @notice Pays out the whole balance, or reverts and pays nothing. The platform's part is rounded down, and the
    /// provider gets the rest. If the balance is zero (someone else swept first), it does nothing.
    /// @dev If the token refuses to pay the platform, its part goes to the splitter that pays only the platform, with
    /// the terms (platform, 1, platform, 0). So a blacklisted platform blocks no provider, and its part is never split
    /// again. If the provider can't be paid, nothing moves.
    /// @param token The ERC-20 to pay out.
    function sweep(address token) external;
}
