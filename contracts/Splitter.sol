// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {IERC20} from "@openzeppelin/contracts/token/ERC20/IERC20.sol";
import {SafeERC20} from "@openzeppelin/contracts/token/ERC20/utils/SafeERC20.sol";
import {ISplitter} from "./interfaces/ISplitter.sol";
import {ISplitterFactory} from "./interfaces/ISplitterFactory.sol";

/// @title Splitter
/// @notice See ISplitter, which documents every function and error.
contract Splitter is ISplitter {
    using SafeERC20 for IERC20;

    /// Where a clone's arguments begin, after the code that OpenZeppelin's Clones writes. SplittersTest holds it against
    /// `Clones.fetchCloneArgs`, which costs 400 gas more.
    uint256 private constant ARGUMENTS = 0x2d;
    /// `split` (a word), platform (20 bytes), rewardShare (6 bytes).
    uint256 private constant ARGUMENTS_SIZE = 0x3a;

    ISplitterFactory private immutable FACTORY = ISplitterFactory(msg.sender);

    /// @inheritdoc ISplitter
    function terms()
        public
        view
        returns (
            address provider,
            uint256 providerShare,
            address platform,
            uint256 platformShare,
            uint256 rewardShare
        )
    {
        uint256 split;
        uint256 rest;
        assembly ("memory-safe") {
            extcodecopy(address(), 0, ARGUMENTS, ARGUMENTS_SIZE)
            split := mload(0)
            rest := mload(0x20)
        }
        provider = address(uint160(split >> 96));
        providerShare = uint48(split >> 48);
        platform = address(uint160(rest >> 96));
        platformShare = uint48(split);
        rewardShare = uint48(rest >> 48);
    }

    /// @inheritdoc ISplitter
    function sweep(address token, address rewardTo) external {
        (address provider, uint256 providerShare, address platform, uint256 platformShare, uint256 rewardShare) =
            terms();
        uint256 balance = IERC20(token).balanceOf(address(this));
        uint256 units = balance / (providerShare + platformShare + rewardShare);
        if (units == 0) revert NothingToSweep(balance);
        uint256 reward = units * rewardShare;
        uint256 toPlatform = units * platformShare;
        if (reward != 0 && !IERC20(token).trySafeTransfer(rewardTo, reward)) toPlatform += reward;
        if (toPlatform != 0 && !IERC20(token).trySafeTransfer(platform, toPlatform)) {
            IERC20(token).safeTransfer(_platformSplitter(platform), toPlatform);
        }
        IERC20(token).safeTransfer(provider, units * providerShare);
    }

    /// The splitter that pays one part to the platform and none to anybody else.
    function _platformSplitter(address platform) private view returns (address) {
        return FACTORY.splitterOf(uint256(uint160(platform)) << 96 | 1 << 48, platform, 0);
    }
}
